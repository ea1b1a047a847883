#!/bin/sh
# jobs/claims.yaml: frequency, severity and pure premium of insurance claims, whose true coefficients are known. The models equal
# those of Newton's method on sums over the cells of the factors, and their coefficients are within 2 % of the true ones.
. "$(dirname "$0")/lib.sh"

"$trireme" generate claims -o datasets/claims.csv rows=600k >made 2>&1 || fail "generate: $(cat made)"
"$trireme" generate claims -o - rows=2 first_row=1 | tail -n 2 >rows
sed -n '3,4p' datasets/claims.csv | cmp -s - rows || fail "first_row: other rows: $(cat rows)"

# cells: sums over the policies of each combination of factors, and the number of claims without an amount
awk -F, 'NR > 1 {
    cell = ($1 == "young") " " ($1 == "senior") " " ($2 == "city") " " ($3 == "old") " " $4
    time[cell] += $5; claims[cell] += $7; amount[cell] += $7 * $8; premium[cell] += $5 * $9
    if (($7 > 0) != ($8 != "")) bad++
} END {
    for (cell in time) print cell, time[cell], claims[cell], amount[cell], premium[cell]
    if (bad) print "bad rows:", bad >"/dev/stderr"
}' datasets/claims.csv >cells 2>bad_rows
[ ! -s bad_rows ] || fail "$(cat bad_rows)"

# newton.py: per model the coefficients of Newton's method, and the true ones; the variance is mean^p
cat >newton.py <<'END'
import math
true = {"frequency": (0.8, 0.4, 0.7, -0.5, 0.5), "severity": (0.5, 0.3, 0.3, -0.6, 0.4)}
true["premium"] = [f + s for f, s in zip(true["frequency"], true["severity"])]
names = ["age=young", "age=senior", "region=city", "car=old", "power"]
cells = [[float(v) for v in line.split()] for line in open("cells")]
for model, p in ("frequency", 1), ("severity", 2), ("premium", 1.5):
    # weight of the cell, and weight × mean label
    rows = [([1] + c[:5], *{"frequency": (c[5], c[6]), "severity": (c[6], c[7]), "premium": (c[5], c[8])}[model]) for c in cells]
    w = [math.log(sum(r[2] for r in rows) / sum(r[1] for r in rows))] + [0] * 5
    for turn in range(30):
        h = [[0] * 7 for i in w]
        for x, weight, total in rows:
            mean = math.exp(sum(a * b for a, b in zip(w, x)))
            slope, curve = weight * mean ** (2 - p) - total * mean ** (1 - p), weight * mean ** (2 - p)
            for i in range(6):
                h[i][6] += slope * x[i]
                for j in range(6): h[i][j] += curve * x[i] * x[j]
        for i in range(6):
            for k in range(6):
                if k != i: h[k] = [a - h[k][i] / h[i][i] * b for a, b in zip(h[k], h[i])]
        w = [a - h[i][6] / h[i][i] for i, a in enumerate(w)]
    for name, found, is_true in zip(names, w[1:], true[model]): print(model, name, "%.6f %g" % (found, is_true))
END
python3 newton.py >expected

for ranks in 1 2; do
    run claims $ranks "$jobs/claims.yaml" data.folders=. solve.target_gap=1e-8
    while read -r model name newton true; do
        # coefficients of the values of a category differ by a constant: the first value is the reference
        "$trireme" inspect claims/$model/model.h5 --top 9 | awk -v name="$name" '
            $2 ~ /^[-+][0-9.e+-]+$/ { w[$1] = $2 }
            END { split(name, part, "="); base["age"] = "adult"; base["region"] = "country"; base["car"] = "new"
                  print w[name] - (part[2] ? w[part[1] "=" base[part[1]]] : 0) }' >found
        near "$(cat found)" "$newton" 1e-4 || fail "$ranks ranks, $model, $name: $(cat found), by Newton's method $newton"
        holds "$ranks ranks, $model, $name: $(cat found) is within 2 % of $true" "($(cat found) - $true) ^ 2 < (0.02 * $true) ^ 2"
    done <expected
done

# the job's comments
"$trireme" predict claims/premium datasets/claims.csv 2>err | head -n 1 >said
awk '{ exit !($1 > 100) }' said || fail "the premium of the first policy: $(cat said err)"
# trees, with the same offsets, on a sample: the mean of the predicted claims is that of the claims
head -n 20001 datasets/claims.csv >some.csv
run trees 2 data.train=some.csv model.type=trees model.objective=poisson data.label=claims data.offset=log_exposure \
    data.columns="{exposure: ignore, severity: ignore, premium: ignore}" solve.epochs=50 model.leaves=8
{ echo; "$trireme" predict trees some.csv; } | paste -d, - some.csv | awk -F, 'NR > 1 { p += $1; c += $8 } END { print p / c }' >said
near "$(cat said)" 1 0.01 || fail "trees predict $(cat said) times the claims"
