#!/bin/sh
# Linear models of more than two classes: training, files, predictions, evaluation, inspection.
. "$(dirname "$0")/lib.sh"

"$trireme" generate dense -o three.svm rows=2000 columns=8 clusters=3 spread=1 noise=1 format=libsvm 2>/dev/null
"$trireme" generate dense -o test.svm rows=500 first_row=2000 columns=8 clusters=3 spread=1 noise=1 format=libsvm 2>/dev/null
printf 'data: {train: three.svm, test: test.svm}\nmodel: {type: logistic, bias: yes}\nsolve: {method: sgd, epochs: 20}\n' >job.yaml

# evaluated FOLDER: what evaluate says of the model in both files is the same, and what training said of it
evaluated() {
    "$trireme" evaluate --json "$1/model.h5" test.svm >h5.json && "$trireme" evaluate --json "$1/model.txt" test.svm >txt.json ||
        fail "$1: cannot be evaluated"
    cmp -s h5.json txt.json || fail "$1: model.h5 and model.txt differ: $(cat h5.json txt.json)"
    near "$(of "$1" test_accuracy)" "$(number accuracy <h5.json)" 1e-9 || fail "$1: accuracy $(of "$1" test_accuracy), $(cat h5.json)"
}

# ---- one softmax, and each against the rest; any labels, in any order of the file ----

for classes in softmax one-against-rest; do
    run "$classes" 2 job.yaml model.classes=$classes && evaluated $classes
    holds "$classes" "$(number accuracy <h5.json) > 0.9"
    "$trireme" predict $classes test.svm --probability >p || fail "$classes: no probabilities"
    awk 'NF != 3 || ($1 + $2 + $3 - 1) ^ 2 > 1e-12 { exit 1 }' p || fail "$classes: no three probabilities of sum 1"
    "$trireme" predict $classes test.svm --margin >margins || fail "$classes: no margins"
    "$trireme" predict $classes test.svm >labels || fail "$classes: no labels"
    paste -d' ' margins labels |
        awk '{ b = 0; for (k = 1; k < 3; k++) if ($(k + 1) > $(b + 1)) b = k; if (b != $4) exit 1 }' ||
        fail "$classes: a label is not that of the largest margin"
    paste -d' ' labels test.svm | awk '{ n[$1]++; right[$1] += $1 == $2; all[$2]++ }
        END { for (k = 0; k < 3; k++) printf "%d %.9f %.9f\n", all[k], right[k] / n[k], right[k] / all[k] }' >counted
    for k in 0 1 2; do
        echo "$(number rows_$k <h5.json) $(number precision_$k <h5.json) $(number recall_$k <h5.json)"
    done | awk '{ printf "%d %.9f %.9f\n", $1, $2, $3 }' | cmp -s counted - || fail "$classes: other counts by class: $(cat h5.json)"
    "$trireme" inspect $classes --top 2 >shown
    grep -q 'labels  *3, .*: 0 1 2$' shown && grep -q 'weights for label 2$' shown || fail "$classes: inspect: $(head shown)"
done
grep -q '^classes:  *3, one softmax$' softmax.out || fail "softmax: the classes are not told: $(head -5 softmax.out)"
holds "softmax fits better" "$(of softmax objective) < 0.1"

# ---- two labels: what evaluate tells follows from the predictions, ties among them included ----

"$trireme" generate ctr -o two.svm rows=1000 features=100 nonzeros=4 2>/dev/null
run two 1 data.train=two.svm model.l2=1e-3
check "evaluate two labels" "$trireme" evaluate two two.svm --json && mv out two.json
"$trireme" predict two two.svm --margin | paste -d' ' - two.svm | cut -d' ' -f1,2 | sort -gr >scored
awk 'NR == FNR { positive += $2 > 0; negative += $2 <= 0; next }
    function step() { area += (yes - before) * (no_before + (no - no_before) / 2); ap += (yes - before) * yes / (yes + no); before = yes; no_before = no }
    FNR > 1 && $1 != last { step() }
    { last = $1; yes += $2 > 0; no += $2 <= 0; as[$1 > 0]++; both += $1 > 0 && $2 > 0
      p = 1 / (1 + exp(-$1)); b = int(p * 10); rows[b]++; sum[b] += p; is[b] += $2 > 0 }
    END { step()
        printf "auc %.9f\npr_auc %.9f\nprecision %.9f\nrecall %.9f\nf1 %.9f\n", 1 - area / positive / negative, ap / positive,
            both / as[1], both / positive, 2 * both / (as[1] + positive)
        printf "confusion_1_as_1 %.9f\nconfusion_-1_as_1 %.9f\nconfusion_1_as_-1 %.9f\n", both, as[1] - both, positive - both
        for (b in rows) printf "calibration_%d_rows %.9f\ncalibration_%d_predicted %.9f\ncalibration_%d_observed %.9f\n",
            b, rows[b], b, sum[b] / rows[b], b, is[b] / rows[b] }' scored scored >counted
[ "$(wc -l <counted)" -gt 15 ] || fail "two labels: $(cat counted)"
while read -r name value; do
    near "$(number "$name" <two.json)" "$value" 1e-6 || fail "evaluate: $name is $(number "$name" <two.json), not $value"
done <counted
"$trireme" evaluate two two.svm >shown
grep -q '^-1 is  *[0-9]*  *[0-9]*$' shown && grep -q '^0.3 to 0.4 ' shown || fail "evaluate shows no tables: $(cat shown)"
holds "softmax: confused" "$(number confusion_0_as_0 <h5.json) + $(number confusion_0_as_1 <h5.json) + $(number confusion_0_as_2 <h5.json) == $(number rows_0 <h5.json)"
refuses "curves of three labels" 64 "there are no curves" "$trireme" evaluate softmax test.svm --plot
refuses "a file without a drawing" 64 "-o is the file of --plot" "$trireme" evaluate two two.svm -o curves.svg
if command -v gnuplot >/dev/null; then
    check "curves" "$trireme" evaluate two two.svm --plot -o curves.svg
    [ "$(grep -c 'ROC<\|>precision<\|>observed share<' curves.svg)" -eq 3 ] || fail "curves.svg lacks a curve"
fi

# ---- each method and any number of ranks comes to the same optimum ----

softmax="model.classes=softmax solve.target_gap=1e-4 solve.epochs=200"
rest="model.classes=one-against-rest solve.target_gap=1e-4 solve.epochs=200"
squares="model.classes=one-against-rest model.type=l2svm model.l2=0.1 solve.target_gap=1e-4 solve.epochs=300"
hinge="model.classes=one-against-rest model.type=svm model.l2=0.1 model.bias_l2=yes solve.epochs=300"
for ranks in 1 2 4 8; do
    run_all $ranks job.yaml <<END
$(for method in newton dual; do case $ranks in
    1) printf '%s\n' "softmax-$method-1 $softmax" "rest-$method-1 $rest" "squares-$method-1 $squares" ;;
    2) printf '%s\n' "softmax-$method-2 $softmax" "rest-$method-2 $rest" ;;
    4) echo "squares-$method-4 $squares" ;;
    8) echo "softmax-$method-8 $softmax" ;;
    esac | sed "s/$/ solve.method=$method/"; done
    [ $ranks -gt 2 ] || echo "hinge-dual-$ranks $hinge solve.method=dual")
END
done
for name in softmax-newton-2 softmax-newton-8 softmax-dual-1 softmax-dual-2 softmax-dual-8 rest-newton-2 rest-dual-1 rest-dual-2 \
    squares-newton-4 squares-dual-1 squares-dual-4 hinge-dual-2; do
    first=${name%%-*}-newton-1
    [ $first != hinge-newton-1 ] || first=hinge-dual-1
    holds "$name" "($(of $name objective) / $(of $first objective) - 1) ^ 2 < 1e-6"
done
refused 65 "third kind .*expected two kinds for solve.method svrg" solve.method=svrg

# ---- a run that was stopped goes on to the same bits ----

for ranks in 1 2; do
    set -- job.yaml solve.method=dual sync.mode=bsp solve.epochs=12 report.every=4 checkpoint.every="1 clocks"
    run whole $ranks "$@"
    run parts $ranks "$@" solve.epochs=5
    run parts $ranks "$@"
    cmp -s whole/model.txt parts/model.txt || fail "$ranks ranks: in two parts another model"
    set -- "$@" solve.method=newton model.classes=one-against-rest solve.target_gap=1e-9 solve.epochs=40 report.every=1
    run newton-whole $ranks "$@"
    run newton-parts $ranks "$@" solve.epochs=7
    run newton-parts $ranks "$@"
    cmp -s newton-whole/model.txt newton-parts/model.txt || fail "newton, $ranks ranks: in two parts another model"
done

sed 's/^0 /3 /; s/^1 /100 /; s/^2 /7.5 /' three.svm >odd.svm
sed 's/^0 /3 /; s/^1 /100 /; s/^2 /7.5 /' test.svm >odd-test.svm
run odd 1 job.yaml data.train=odd.svm data.test=odd-test.svm
"$trireme" predict odd odd-test.svm | sort -u | tr '\n' ' ' | grep -qx '100 3 7.5 ' || fail "odd labels are not predicted"
"$trireme" evaluate odd odd-test.svm | grep -q '^recall_7.5 ' || fail "odd labels are not evaluated"

# ---- what cannot be ----

echo '4 1:1' >four.svm
refused 65 "data.test: its only label is 4, expected one of data.train, such as 0" data.test=four.svm
refuses "only new labels" 65 "none of the rows has a label that training has" "$trireme" evaluate softmax four.svm
cat test.svm four.svm four.svm >five.svm # rows with new labels are wrong, and in no other figure
for type in logistic trees; do
    run five 1 data.train=three.svm data.test=five.svm model.type=$type && run none 1 data.train=three.svm data.test=test.svm model.type=$type
    says five.out '^note: *rows of data.test whose label no training row has: 2, wrong in any case'
    "$trireme" evaluate five five.svm >said && says said '^unknown_labels *2 '
    n=$(wc -l <test.svm)
    holds "$type: rows with new labels are wrong" "($(of five test_accuracy) - $(of none test_accuracy) * $n / ($n + 2)) ^ 2 < 1e-18"
    near "$(awk '$1 == "accuracy" { print $2 }' said)" "$(of five test_accuracy)" 1e-6 || fail "$type: evaluate: $(cat said)"
    is "$type: log loss" "$(of five test_log_loss)" "$(of none test_log_loss)"
done
refused 78 "model.classes softmax is for model.type logistic" model.classes=softmax model.type=svm

# ---- a label that chance has held out altogether: what is learnt follows from the other rows, and such a row is wrong ----

awk 'BEGIN { for (i = 0; i < 60; i++) print (i == 7 ? "rare" : i % 3 ? "b" : "a") "," (i % 3 > 0) "," i % 7 }' >rare.csv
sed 's/^a/0/; s/^b/1/; s/^rare/9/; s/,/ 1:/; s/,/ 2:/' rare.csv >rare.svm
for held in "1 rare.csv data.label=first" "2 rare.svm"; do
    for ranks in 1 2; do
        for more in model.type=auto model.type=trees "model.type=logistic solve.method=sgd data.partition=vertical ranks.groups=1"; do
            case $more$held in *vertical*csv*) continue ;; esac
            what="$held, $ranks ranks, $more"
            run rare "$ranks" data.test=50% $more seed=${held%% *} data.train=${held#* } || continue
            grep -q '^note: *rows of data.test whose label no training row has: 1, wrong in any case' rare.out || fail "$what: nothing is said of the rare row"
            [ "$more" = model.type=trees ] || holds "$what" "$(of rare test_auc) == 1"
            holds "$what" "$(of rare test_accuracy) < 1"
        done
    done
done
awk 'BEGIN { for (i = 1; i <= 200; i++) print i % 7 "," (i == 9 ? 3 : i % 3) }' >few.csv
for type in auto trees; do
    run few 1 data.train=few.csv data.label=last data.test=20% model.type=$type seed=11
    grep -q 'labels are 3 integers' few.out || fail "labels of test rows decide on $type: $(cat few.out)"
done

# ---- weights of classes: as if rows stood there so many times ----

grep -v '^0' three.svm >two.svm
{ cat two.svm; grep '^2' two.svm; grep '^2' two.svm; } >repeated.svm
set -- data.test=two.svm model.l2=0.01 model.bias_l2=yes solve.method=dual solve.epochs=100 report.every=100
for ranks in 1 2; do
    run_all $ranks job.yaml <<END
$(for type in logistic svm l2svm; do
    [ $ranks -ne 1 ] || echo "repeated-$type $* model.type=$type data.train=repeated.svm"
    echo "weighed-$type $* model.type=$type data.train=two.svm model.class_weights=2:3"
done)
END
    for type in logistic svm l2svm; do
        holds "$type, $ranks ranks" "($(of weighed-$type objective) / $(of repeated-$type objective) - 1) ^ 2 < 1e-6"
    done
done
run repeated 1 job.yaml data.train=repeated.svm data.test=two.svm solve.epochs=100
run balanced 2 job.yaml data.train=repeated.svm data.test=two.svm solve.epochs=100 model.class_weights=balanced
"$trireme" predict repeated repeated.svm | grep -c '^1' >plain
"$trireme" predict balanced repeated.svm | grep -c '^1' >more
[ "$(cat more)" -gt "$(cat plain)" ] || fail "balanced weights: label 1 is predicted $(cat more) times, without them $(cat plain)"
refused 78 "model.class_weights, at «0:-1»: expected balanced" model.class_weights="2:3 0:-1"
refused 78 "model.class_weights, at «0:1e300»: expected balanced" model.class_weights="2:3 0:1e300"
refused 78 "model.class_weights has label 7, which no row has" model.class_weights="7:2"
refused 78 "leaves no row a weight above 0" model.class_weights="0:0 1:0 2:0"
refused 78 "model.class_weights is for classifiers" model.class_weights=balanced model.type=linear
refused 78 "model.class_weights is not for this solve.method" model.class_weights=balanced solve.method=svrg

# ---- LIBLINEAR reads our text, and we read its ----

if command -v liblinear-predict >/dev/null && command -v liblinear-train >/dev/null; then
    for classes in softmax one-against-rest; do
        liblinear-predict test.svm $classes/model.txt theirs >/dev/null || fail "LIBLINEAR does not read $classes/model.txt"
        "$trireme" predict $classes/model.txt test.svm | cmp -s - theirs || fail "$classes: LIBLINEAR predicts other labels"
    done
    for solver in 0 1 4; do
        liblinear-train -q -s $solver -B 2 three.svm liblinear.txt
        liblinear-predict test.svm liblinear.txt theirs >/dev/null
        "$trireme" predict liblinear.txt test.svm | cmp -s - theirs || fail "solver $solver: predicts other labels than LIBLINEAR"
    done
    liblinear-train -q -s 0 three.svm liblinear.txt
    liblinear-predict -b 1 test.svm liblinear.txt theirs >/dev/null # columns: the label, then by the labels of its first line
    head -1 theirs | grep -q '^labels 2 ' && sed 1d theirs | cut -d' ' -f2- >expected
    "$trireme" predict liblinear.txt test.svm --probability >p
    paste -d' ' p expected | awk '{ for (k = 1; k <= 3; k++) if (($k - $(k + 3)) ^ 2 > 1e-9) exit 1 }' ||
        fail "other probabilities than LIBLINEAR's: $(head -1 p) and $(head -1 expected)"
else
    skip "no LIBLINEAR here"
fi

# ---- labels 1..10 of usps and 1..26 of letter: as good as LIBLINEAR's ----

if [ -d "$data/usps" ] && [ -d "$data/letter" ]; then
    run usps 2 job.yaml data.train="$data/usps/usps.train.libsvm.gz" data.test="$data/usps/usps.test.libsvm.gz" \
        solve.method=newton solve.target_gap=1e-3
    holds usps "$(of usps test_accuracy) > 0.905"
    "$trireme" inspect usps --top 1 | grep -q 'labels  *10, softmax: 1 2 3 4 5 6 7 8 9 10$' || fail "usps: other labels"
    run letter 2 job.yaml data.train="$data/letter/letter.libsvm.gz" data.test=20% solve.method=newton solve.target_gap=1e-2
    holds letter "$(of letter test_accuracy) > 0.76"
    # means of squares are over many more mini-batches than there are classes (0.84 and 0.90 where a tenth of them counts)
    gzip -dc "$data/letter/letter.libsvm.gz" 2>/dev/null | head -4000 >letters.svm
    for optimizer in adadelta rmsprop; do
        run $optimizer 1 job.yaml data.train=letters.svm data.test=20% solve.optimizer=$optimizer solve.epochs=10
        holds $optimizer "$(of $optimizer objective) < 0.82"
    done
else
    skip "no usps and letter"
fi
