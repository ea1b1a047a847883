#!/bin/sh
# data.offset: a number that is added to the margin of each row, in training, evaluation and prediction.
. "$(dirname "$0")/lib.sh"

# rows.csv: counts with exposures; classes.csv, amounts.csv, shifted.csv: the same rows with a class, an amount above 0, and the
# difference of count and offset as label
awk 'BEGIN {
    srand(7); head = "a,b,time,y,log_time,w"
    print head >"rows.csv"; print head >"classes.csv"; print head >"amounts.csv"; print head >"shifted.csv"
    for (i = 0; i < 600; i++) {
        a = int(rand() * 1000) / 1000; b = int((rand() + rand() + rand() - 1.5) * 2000) / 1000
        time = int(1 + 4000 * rand() ^ 2 * (0.5 + a)) / 1000; offset = sprintf("%.6f", log(time))
        y = -1; limit = exp(-time * exp(-0.5 + 0.8 * a - 0.4 * b)); for (p = 1; p > limit || y < 0; p *= rand()) y++
        row = a "," b "," time; rest = offset "," 1 + i % 3
        print row "," y "," rest >"rows.csv"; print row "," (y > 0) "," rest >"classes.csv"
        print row "," y + 0.5 "," rest >"amounts.csv"; printf "%s,%.6f,%s\n", row, y - offset, rest >"shifted.csv"
        print y " 1:" a " 2:" b >"rows.svm"; print offset >"offsets"; print 1 + i % 3 >"weights"
    }
}'
# reference FILE TYPE: the minimum of Σ w φ / Σ w + 0.01/2 |(a, b)|², by Newton steps
cat >newton.py <<'END'
import csv, math, sys
def loss(kind, m, y):
    if kind == "poisson": return math.exp(m) - y * m + (y * math.log(y) - y if y > 0 else 0), math.exp(m) - y, math.exp(m)
    if kind == "gamma": return y * math.exp(-m) + m - math.log(y) - 1, 1 - y * math.exp(-m), y * math.exp(-m)
    if kind == "tweedie":
        root, e = math.sqrt(y), math.exp(m / 2)
        return -4 * root + 2 * y / e + 2 * e, e - y / e, e / 2 + y / e / 2
    if kind == "linear": return (m - y) ** 2 / 2, m - y, 1
    y = 1 if y > 0 else -1
    p = 1 / (1 + math.exp(y * m))
    return (math.log1p(math.exp(-y * m)), -y * p, p * (1 - p)) if kind == "logistic" else \
           (max(0, 1 - y * m) ** 2, -2 * y * max(0, 1 - y * m), 2 if y * m < 1 else 0)
def objective(w, rows, kind):
    return sum(c * loss(kind, sum(p * q for p, q in zip(w, x)) + o, y)[0] for x, y, o, c in rows) / total + 0.005 * (w[1] ** 2 + w[2] ** 2)
rows = [([1, float(r["a"]), float(r["b"])], float(r["y"]), float(r["log_time"]), float(r["w"])) for r in csv.DictReader(open(sys.argv[1]))]
total, w = sum(r[3] for r in rows), [0, 0, 0]
for turn in range(50):
    h = [[0] * 4 for i in w]
    for x, y, o, c in rows:
        _, slope, curve = loss(sys.argv[2], sum(p * q for p, q in zip(w, x)) + o, y)
        for i in range(3):
            h[i][3] += c * slope * x[i] / total
            for j in range(3): h[i][j] += c * curve * x[i] * x[j] / total
    for i in (1, 2): h[i][i] += 0.01; h[i][3] += 0.01 * w[i]
    for i in range(3):
        for k in range(3):
            if k != i: h[k] = [p - h[k][i] / h[i][i] * q for p, q in zip(h[k], h[i])]
    step, by = [h[i][3] / h[i][i] for i in range(3)], 1
    while by > 1e-6 and objective([p - by * q for p, q in zip(w, step)], rows, sys.argv[2]) > objective(w, rows, sys.argv[2]): by /= 2
    w = [p - by * q for p, q in zip(w, step)]
print("%.12g" % objective(w, rows, sys.argv[2]))
END
reference() { python3 newton.py "$1.csv" "$2" | tee "least.$2"; }

# ---- linear models: each method reaches the minimum, and the gap is a bound ----

printf 'data: {label: y, weight: w, offset: log_time, columns: {time: ignore}, scale: none}\nmodel: {l2: 0.01}\nsolve: {target_gap: 1e-5}\n' >job.yaml
cat >cases <<END
poisson rows model.type=poisson
gamma amounts model.type=gamma
tweedie rows model.type=tweedie
linear rows model.type=linear
least rows model.type=linear solve.method=dual
l2svm classes model.type=l2svm solve.method=newton
margin classes model.type=l2svm solve.method=dual
logistic classes model.type=logistic solve.method=newton
dual classes model.type=logistic solve.method=dual
descent classes model.type=logistic solve.method=descent model.l1=1e-9
END
sed 's/ \([a-z]*\) / data.train=\1.csv /' cases >lines
for ranks in 1 3; do
    run_all $ranks job.yaml <lines
    while read -r name file type _; do
        type=${type#*=} least=$(cat "least.${type}" 2>/dev/null || reference $file "$type")
        holds "$ranks ranks, $name: objective $(of $name objective), least $least" "$(of $name objective) < $least * (1 + 2e-5)"
        holds "$ranks ranks, $name: the gap $(of $name gap) is a bound" "$(of $name objective) <= $least * (1 + $(of $name gap)) + 1e-8"
    done <cases
done
# without weights: methods that have none
cut -d, -f1-5 classes.csv | sed 's/$/,1/; 1s/1$/w/' >ones.csv
least=$(reference ones logistic)
printf '%s\n' svrg katyusha growing sgd | sed 's/.*/& solve.method=&/; s/\(sgd\|growing\)$/& solve.epochs=60/' >lines
sed 's/weight: w, //; s/time: ignore/time: ignore, w: ignore/' job.yaml | sed '/^solve/d' >plain.yaml
sed 's/$/ data.train=ones.csv model.type=logistic/' lines >cases
run_all 2 plain.yaml <cases
while read -r name _; do
    holds "$name: objective $(of $name objective), least $least" "$(of $name objective) < $least * 1.005"
done <cases
# losses of the difference of label and margin: offsets are subtracted from labels, also in scales and in the automatic lambda
sed 's/model: .*/model: {}/' job.yaml >auto.yaml
sed 's/offset: log_time, //; s/time: ignore/time: ignore, log_time: ignore/' auto.yaml >shifted.yaml
printf '%s\n' huber quantile logcosh | sed 's/.*/& model.type=&/' >cases
sed 's/$/ data.train=rows.csv/' cases >lines
run_all 2 auto.yaml <lines
sed 's/^/shifted-/; s/$/ data.train=shifted.csv/' cases >lines
run_all 1 shifted.yaml <lines
while read -r name _; do
    near "$(of $name objective)" "$(of shifted-$name objective)" 1e-5 ||
        fail "$name: $(of $name objective), $(of shifted-$name objective) of shifted labels"
done <cases

# ---- files of offsets, partitions, disks ----

files="solve.target_gap=1e-5 data.train=rows.svm data.weight=weights data.offset=offsets data.scale=none model.type=poisson model.l2=0.01"
least=$(cat least.poisson)
run file 1 $files
run parts 2 $files solve.method=sgd solve.epochs=150 sync.mode=bsp data.partition=vertical ranks.groups=1
run disk 3 $files data.storage=disk data.scratch=.
run group 4 job.yaml model.type=poisson data.train=rows.csv data.partition=replicated ranks.groups=2
for name in file parts disk group; do
    near "$(of $name objective)" "$least" 1e-4 || fail "$name: objective $(of $name objective), least $least"
done

# a row with a malformed offset is left out, also in the second pass, which writes the rows to a disk
sed '17s/,[^,]*,\([^,]*\)$/,nan,\1/' rows.csv >nan.csv
run kept 2 job.yaml data.train=nan.csv model.type=poisson data.on_error=skip
run left 2 job.yaml data.train=nan.csv model.type=poisson data.on_error=skip data.storage=disk data.scratch=.
near "$(of kept objective)" "$(of left objective)" 1e-9 || fail "malformed offset: objective $(of kept objective), on a disk $(of left objective)"

# ---- predict and evaluate ----

run table 1 job.yaml model.type=poisson data.train=rows.csv data.test=rows.csv
"$trireme" predict table rows.csv --margin >margins
"$trireme" predict file rows.svm data.offset=offsets --margin >of_file
on 3 "$trireme" predict file rows.svm data.offset=offsets --margin >of_ranks
"$trireme" predict file/model.txt rows.svm data.offset=offsets --margin >of_text
awk '/^w$/ { on = 1; next } on { print }' table/model.txt | paste -sd' ' - >weights_of_model
awk -F, 'NR == FNR { split($0, w, " "); next } FNR > 1 { printf "%.5f\n", w[1] * $1 + w[2] * $2 + w[3] + $5 }' weights_of_model rows.csv >expected
for name in margins of_file of_ranks of_text; do
    paste -d' ' $name expected | awk '{ d = $1 - $2; if (d > 1e-3 || d < -1e-3) n++ } END { exit n > 0 || NR != 600 }' || fail "predict: $name: other margins"
done
# half_deviance FILE: Σ w (μ - y log μ + y log y - y) / Σ w of the means in the file, of rows.csv
half_deviance() {
    { echo; cat "$1"; } | paste -d, - rows.csv |
        awk -F, 'NR > 1 { sum += $7 * ($1 - $5 * log($1) + ($5 > 0 ? $5 * log($5) - $5 : 0)); n += $7 } END { printf "%.7g\n", sum / n }'
}
"$trireme" predict table rows.csv >means
"$trireme" evaluate table rows.csv | awk '$1 == "poisson_deviance" { print $2 / 2 }' >said
near "$(cat said)" "$(half_deviance means)" 1e-5 || fail "evaluate: deviance $(cat said), from predictions $(half_deviance means)"
[ "$(grep -c "poisson_deviance $(awk '{ printf "%.4f", 2 * $1 }' said)" table.out)" -gt 0 ] || fail "the test line lacks the deviance: $(cat table.out)"
cut -d, -f1-4,6 rows.csv >none.csv
head -n 599 offsets >few; { cat offsets; echo 1; } >many
expect 65 "none.csv: there is no column log_time, which the training data have" predict table none.csv
expect 65 "nan.csv:17: column log_time: 'nan' is no offset of a row, expected a finite number" predict table nan.csv
expect 64 "the model was trained with data.offset offsets: expected data.offset=FILE" predict file rows.svm
expect 64 "the model was trained with data.offset: expected data.offset=FILE" predict file/model.txt rows.svm
expect 64 "data.offset=offsets: the offsets are in column log_time of the data" evaluate table rows.csv data.offset=offsets
expect 65 "few: 599 offsets, but the data have at least 600 rows" evaluate file rows.svm data.offset=few
expect 65 "many: 601 offsets, but the data have 600 rows" predict file rows.svm data.offset=many
run without 1 data.train=rows.csv data.label=y model.type=poisson
expect 64 "data.offset=offsets: the model was trained without data.offset" predict without rows.csv data.offset=offsets

# ---- trees ----

trees="model.type=trees data.label=y data.weight=w data.columns=time:ignore solve.epochs=5 model.leaves=4 model.min_rows=10"
for ranks in 1 3; do
    run trees $ranks data.train=rows.csv data.offset=log_time $trees model.objective=poisson
    run squares $ranks data.train=rows.csv data.offset=log_time $trees model.objective=squared
    [ $ranks -eq 1 ] && { mv trees trees_1; mv squares squares_1; }
done
same_model trees trees_1
same_model squares squares_1
run shifted 1 data.train=shifted.csv $trees model.objective=squared data.columns=time:ignore,log_time:ignore
near "$(of squares objective)" "$(of shifted objective)" 1e-5 || fail "squared: objective $(of squares objective), $(of shifted objective) of shifted labels"
h5dump -d base trees/model.h5 | awk '/\(0\): [-0-9]/ { print $2 }' >said
awk -F, 'NR > 1 { y += $6 * $4; e += $6 * exp($5) } END { printf "%.7g\n", log(y / e) }' rows.csv >expected
near "$(cat said)" "$(cat expected)" 1e-5 || fail "trees: the initial score is $(cat said), not $(cat expected)"
"$trireme" predict trees rows.csv --contributions | awk '{ print $1 + $2 + $3 }' >sums
"$trireme" predict trees rows.csv --margin | paste -d' ' - sums | awk '{ d = $1 - $2; if (d > 1e-4 || d < -1e-4) n++ } END { exit n > 0 || NR != 600 }' ||
    fail "trees: contributions do not sum to the margins"
"$trireme" predict trees rows.csv >means
near "$(half_deviance means)" "$(of trees objective)" 1e-5 || fail "trees: objective $(of trees objective), from predictions $(half_deviance means)"
run logistic 1 data.train=classes.csv data.test=classes.csv data.offset=log_time $trees
"$trireme" evaluate logistic classes.csv | awk '$1 == "log_loss" { print $2 }' >said
near "$(cat said)" "$(of logistic objective)" 1e-5 || fail "trees: log loss $(cat said), objective $(of logistic objective)"

# ---- what cannot be ----

printf 'data: {train: rows.csv, label: y, columns: {time: ignore, w: ignore}}\nmodel: {type: poisson}\n' >job.yaml
for word in "" nan; do
    sed "17s/,[^,]*,\([^,]*\)\$/,$word,\1/" rows.csv >bad.csv
    refused 65 "bad.csv:17: column log_time: '$word' is no offset of a row, expected a finite number" data.train=bad.csv data.offset=log_time
done
sed '17s/.*/nan/' offsets >nan
refused 65 "nan:17: «nan» is no offset of a row, expected one finite number" data.offset=nan
refused 65 "few:599: the offsets end here, after 599, but data.train has 600 rows" data.offset=few
refused 65 "many:601: one offset too many: data.train has 600 rows" data.offset=many
refused 66 "nothing: no such file" data.offset=nothing
refused 78 "data.offset: column y has the labels" data.offset=y
refused 78 "data.offset: column w has the weights" data.offset=w data.weight=w
refused 78 "data.columns and data.offset name two offsets, expected one" data.columns=log_time:offset,time:offset
refused 78 "labels, weights and offsets cannot be crossed" data.offset=log_time "data.cross=[log_time*a]"
refused 78 "data.offset has a number for each row, but data.test takes some rows away" data.offset=offsets data.test=10%
refused 78 "data.offset has a number for each row of data.train, but none for those of data.test" data.offset=offsets data.test=rows.csv
refused 78 "data.offset is for models of one output: rows.csv:.* is the third kind" data.offset=log_time model.type=logistic
refused 78 "data.offset is for models of one output, not for softmax" data.offset=log_time model.type=trees model.objective=softmax
refused 78 "data.offset is of no use to .* model.type kmeans" data.offset=log_time model.type=kmeans
refused 78 "offsets of rows are of no use to model.type kmeans" data.columns=log_time:offset model.type=kmeans
