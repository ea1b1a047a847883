#!/bin/sh
# Topics: training, predictions, evaluation, inspection, errors.
. "$(dirname "$0")/lib.sh"
reuters=$data/reuters395

check generate "$trireme" generate docword -o bag -v words documents=600 words=300 tokens=30k topics=6
printf 'model: {type: lda, topics: 12}\nsolve: {epochs: 30}\nreport: {every: 5, progress: no}\ndata: {train: [bag], test: [bag], vocabulary: [words]}\n' >news.yaml

# ---- in any layout: log p of the words rises although the priors change, and the file is what its readers expect ----
trial() { # NAME RANKS SETTINGS…
    name=$1 ranks=$2; shift 2
    # without BSP evaluations are not of one moment, and the groups have different priors, of which the file has the largest
    case $* in *ssp) fall=0.05 far=0.15 apart=0.3 ;; *) fall=0 far=0.02 apart=1e-4 ;; esac
    check "$name: train" on "$ranks" "$trireme" train news.yaml output="$name" "$@"
    awk -F, -v fall="$fall" 'NR > 1 { if ($4 < last - fall && NR > 2) bad = 1; last = $4 } END { exit bad || NR != 8 }' "$name/metrics.csv" ||
        fail "$name: log p does not rise: $(cut -d, -f4 "$name/metrics.csv")"
    near "$(of "$name" objective)" -3.665 $far || fail "$name: log p is $(of "$name" objective)"
    grep -q '"metric": "perplexity"' "$name/summary.json" || fail "$name: $(grep '"metric"' "$name/summary.json")"
    check "$name: evaluate" "$trireme" evaluate "$name" bag --json
    near "$(number perplexity <out)" 42 3 || fail "$name: perplexity $(number perplexity <out)"
    near "$(of "$name" test_perplexity)" "$(number perplexity <out)" $apart ||
        fail "$name: $(of "$name" test_perplexity) in the summary"
    ls "$name" | grep -q part && fail "$name: a part is left"
}
trial one 1
# sweeps and candidates compare objectives if there is no metric: a higher log p is better
run untested 1 data.train=bag model.type=lda model.topics=4 solve.epochs=3
grep -q '"metric_ascends": true' untested/summary.json || fail "untested: a lower log p is better: $(grep metric untested/summary.json)"
trial group 4
trial groups 4 ranks.groups=2 ranks.group_size=2
trial alone 3 ranks.group_size=1 sync.mode=ssp
# … two nodes of several ranks: a group each, which learn as much as one group of all
trial nodes 8 ranks.node_size=4
grep -q '"layout": ".*: 8 servers, 2 groups of 4"' nodes/summary.json || fail "nodes: $(grep layout nodes/summary.json)"
trial together 8 ranks.node_size=4 ranks.groups=1
holds "two nodes: log p as of one group" "$(of nodes objective) > $(of together objective) - 0.05"
trial servers 7 ranks.servers=2 ranks.groups=2 ranks.group_size=2 table.rotate=travel

# ---- with one topic log p and perplexity follow from the counts of the words ----
printf '2\n3\n4\n1 1 5\n1 2 3\n2 2 4\n2 3 8\n' >counted
printf '1\n3\n1\n1 3 50\n' >third
for groups in 1 2; do
    run "counted$groups" 2 model.type=lda data.train=counted data.test=third model.topics=1 solve.epochs=1 ranks.groups=$groups
    awk -v found="$(of "counted$groups" objective)" -v test="$(of "counted$groups" test_perplexity)" 'BEGIN {
        log_p = (5 * log(5.01 / 20.03) + 7 * log(7.01 / 20.03) + 8 * log(8.01 / 20.03)) / 20
        exit !((found - log_p)^2 < 1e-10 && (test - 20.03 / 8.01)^2 < 1e-10) }' ||
        fail "counted: log p $(of "counted$groups" objective), perplexity $(of "counted$groups" test_perplexity)"
done

# ---- a target counts only while log p rises: it is met at once here, but the joint log p falls at first ----
sed "s/test: .bag., //" news.yaml >fixed.yaml
check "target: train" "$trireme" train fixed.yaml output=target solve.target=99 report.every=1 report.progress=yes model.optimize=no
grep -q 'joint log p' err || fail "fixed priors: no joint log p: $(head -20 err)"
awk -F, 'NR > 1 { if (NR > 2 && $4 >= last) rises++; last = $4 } END { exit NR < 4 || rises != 1 || $4 < last }' target/metrics.csv ||
    fail "target: it is not the first rise that ends the run: $(cut -d, -f2,4 target/metrics.csv)"
grep -q "^target: .* epoch $(tail -1 target/metrics.csv | cut -d, -f2)\.00" err ||
    fail "target: not in the last epoch: $(grep ^target: err)"

# ---- a run repeats, bit by bit (files hold the time at which they were made) ----
command -v h5diff >/dev/null || skip "h5diff is not here"
command -v h5diff >/dev/null && for layout in "ranks.groups=1 ranks.group_size=3" "ranks.groups=3 ranks.group_size=1"; do
    rm -rf again again.1
    for i in 1 2; do
        # shellcheck disable=SC2086
        check "again: train" on 3 "$trireme" train news.yaml output=again $layout solve.epochs=22
    done
    h5diff again/model.h5 again.1/model.h5 >out 2>&1 || fail "a second run with $layout gives another model"
done

# ---- the last seeds there are, which no double tells apart, are two ----
for seed in 18446744073709551614 18446744073709551615; do
    check "seed $seed: train" "$trireme" train news.yaml output=$seed seed=$seed solve.epochs=2
done
holds "seeds that differ by 1: log p" "$(of 18446744073709551614 objective) != $(of 18446744073709551615 objective)"

# ---- predict ----
check predict "$trireme" predict one bag -o mixtures
[ "$(wc -l <mixtures)" -eq 600 ] || fail "predict: $(wc -l <mixtures) lines for 600 documents"
check "predict --top" "$trireme" predict one bag --top 12
awk '{ if (NF != 12) bad = 1; sum = 0; last = 2
    for (i = 1; i <= NF; i++) { split($i, part, ":"); sum += part[2]; if (part[2] > last || part[1] > 11) bad = 1; last = part[2] }
    if (sum < 0.999 || sum > 1.001) bad = 1 } END { exit bad }' out || fail "predict: shares do not descend, or do not sum to 1"
printf '2\n300\n3\n1 1 2\n1 300 3\n1 7 1\n' >small # the second document is empty
check "predict: an empty document" "$trireme" predict one small
[ "$(wc -l <out)" -eq 2 ] || fail "predict: $(wc -l <out) lines for two documents"
printf '1\n400\n3\n1 1 2\n1 3 2\n1 350 3\n' >beyond
check "predict: new words" "$trireme" predict one beyond
grep -q '3 words are beyond' err || fail "predict: nothing is said of unknown words: $(cat err)"

# ---- evaluate, inspect ----
check evaluate "$trireme" evaluate one bag
grep -q '^perplexity ' out || fail "evaluate: no perplexity"
check inspect "$trireme" inspect one/model.h5 --top 3
head -1 words >first
grep -q '^topics *12$' out || fail "inspect: no number of topics"
[ "$(awk '/^ topic/ { on = 1; next } /^$/ { on = 0 } on && NF == 7' out | wc -l)" -eq 12 ] ||
    fail "inspect: not three words for each of twelve topics"
[ "$(awk '/^ topic/ { on = 1; next } /^$/ { on = 0 } on { for (i = 5; i <= NF; i++) print $i }' out | grep -vcxFf words)" -eq 0 ] ||
    fail "inspect: words that are not in the vocabulary"
sed 's/^/x/' words >other
check "inspect --vocabulary" "$trireme" inspect one/model.h5 --vocabulary other
awk '/^ topic/ { on = 1; next } /^$/ { on = 0 } on { for (i = 5; i <= NF; i++) print $i }' out | grep -qvxFf other &&
    fail "inspect: words that are not in the other vocabulary"
if command -v h5dump >/dev/null; then
    check "h5dump" h5dump -d /topic -d /count -d /row_begin -d /alpha -d /topic_tokens -d /vocabulary one/model.h5
    grep -q 'DATASPACE  SIMPLE { ( 301 )' out || fail "h5dump: no row_begin of 301 numbers"
    sum=$(h5dump -y -w 1 -d /count one/model.h5 | awk '/DATA \{/ { on = 1; next } on && /^ *[0-9]/ { s += $1 } END { print s }')
    [ "$sum" -eq 30000 ] || fail "h5dump: counts sum to $sum, not to 30000"
else
    skip "h5dump is not here"
fi

# ---- what is wrong ----
train() { "$trireme" train news.yaml output=wrong "$@"; }
refuses "no topics" 78 "from 1 to 65535" train model.topics=0
refuses "too many topics" 78 "from 1 to 65535" train model.topics=65536
refuses "a prior that is infinite in single precision" 78 "model.alpha" train model.alpha=1e300
refuses "such a prior of words" 78 "model.beta" train model.beta=1e39
refuses "another method" 78 "solve.method" train solve.method=sgd
refuses "pieces of documents" 78 "data.partition" train data.partition=replicated
refuses "rounded counts" 78 "table.precision" train table.precision=f16
refuses "weighted counts" 78 "sync.weight" train sync.weight=con
refuses "filtered counts" 78 "table.filter" train table.filter=threshold
head -299 words >short
refuses "a short vocabulary" 65 "short: a vocabulary of 299 lines" train data.vocabulary=short
refuses "two vocabularies" 78 "data.vocabulary" train data.vocabulary=words,short
refuses "no vocabulary" 66 "nowhere" train data.vocabulary=nowhere
printf '0\n300\n0\n' >empty
refuses "no documents" 66 "empty" train data.train=empty
printf '1 1:1\n-1 2:1\n' >svm
refuses "libsvm" 65 "docword" train data.train=svm
refuses "predict libsvm" 65 "svm" "$trireme" predict one svm
refuses "predict --margin" 64 "--margin" "$trireme" predict one bag --margin
refuses "predict --format" 64 "docword" "$trireme" predict one bag --format csv
refuses "inspect, a short vocabulary" 65 "short: a vocabulary of 299 lines" "$trireme" inspect one/model.h5 --vocabulary short
printf '1\n300\n1\n1 5 1\n' >single
refuses "evaluate one word" 66 "single" "$trireme" evaluate one single
size=$(wc -c <one/model.h5)
head -c $((size / 2)) one/model.h5 >half.h5
refuses "half a model" 65 "half.h5" "$trireme" predict half.h5 bag

# ---- real documents ----
if [ -d "$reuters" ]; then
    check "reuters" on 2 "$trireme" train news.yaml output=reuters \
        data.train="$reuters/docword.reuters.txt" data.test="$reuters/docword.reuters.txt" \
        data.vocabulary="$reuters/reuters.tokens" solve.epochs=60
    near "$(of reuters objective)" -7.08 0.1 || fail "reuters: log p is $(of reuters objective)"
    check "reuters: inspect" "$trireme" inspect reuters/model.h5
    grep -q 'pope.*vatican\|vatican.*pope' out || fail "reuters: no topic has the pope in the Vatican"
else
    skip "reuters395 is not in TRIREME_DATA"
fi
