#!/bin/sh
# User errors end with one line, from one rank, and the exit code that fits; nothing that looks like a result is left.
. "$(dirname "$0")/lib.sh"
chmod 755 "$here" # for the other user

# refuses1 CODE WORDS COMMAND…: ends with this exit code, and the one line that is an error has the words
refuses1() {
    code=$1 words=$2; shift 2
    rm -rf out
    "$@" >said 2>err; got=$?
    what=$(echo "$*" | sed "s|$trireme|trireme|; s|--oversubscribe ||")
    one_error "$what" $got "$code" "$words"
    for file in out/model.h5 out/model.txt out/summary.json out/*.tmp out/*.part; do
        [ ! -e "$file" ] || fail "$what: leaves $file"
    done
    if [ -e out/status.json ]; then
        grep -q '"state": "failed"' out/status.json && grep -q "\"status\": $code" out/status.json ||
            fail "$what: status.json says $(grep -E 'state|status' out/status.json | tr -d '\n')"
    fi
}

# refuses CODE WORDS WORD…: trireme WORD…, on one rank and on three
refuses() {
    code=$1 words=$2; shift 2
    for ranks in 1 3; do refuses1 "$code" "$words" on $ranks "$trireme" "$@"; done
}

# refuses_alone CODE WORDS WORD…: on one rank, for errors of a kind that refuses() checks on three as well
refuses_alone() {
    code=$1 words=$2; shift 2
    refuses1 "$code" "$words" "$trireme" "$@"
}

# record TEXT WORDS [SETTING…]: a file with this third line is refused, and file and line are named; each third one on three ranks
records=0
record() {
    printf '1 1:1\n-1 2:1\n%b\n1 1:1 3:0.5\n-1 2:1\n' "$1" >bad
    words=$2; shift 2
    records=$((records + 1))
    refuses1 65 "bad:3: $words" on $((records % 3 ? 1 : 3)) "$trireme" train job.yaml data.train=bad "$@"
}

printf 'name: job\noutput: out\nsolve: {method: dual, epochs: 3, target_gap: 0}\n' >job.yaml
printf '1 1:1 3:2\n-1 2:1\n1 2:.5\n-1 1:.2 4:1\n' >good
good="train job.yaml data.train=good"

# ---- files ----
cp job.yaml here.yaml
refuses1 66 "here: cannot read the job file: No such file or directory: did you mean here.yaml?" "$trireme" train here
refuses1 64 "unknown option --epochs: did you mean solve.epochs=3?" "$trireme" train --epochs 3 data.train=good
refuses1 64 "unknown option --min-count=3: did you mean data.min_count=3?" "$trireme" train job.yaml --min-count=3
refuses1 64 "unknown option --max-tim: did you mean --max-time?" "$trireme" train job.yaml --max-tim 3
refuses1 64 "unknown option --zzz: settings are section.key=value" "$trireme" train job.yaml --zzz
refuses1 66 "standard input: the job file is empty" "$trireme" train - </dev/null
printf 'data: {trin: good}' | refuses1 78 "standard input:1: unknown key data.trin" mpirun $quiet -n 1 "$trireme" train -
refuses 66 "nothing: no such file" train job.yaml data.train=nothing
refuses_alone 66 "nothing: no such file" train job.yaml data.train=good data.test=nothing
: >empty
refuses 66 "empty: empty" train job.yaml data.train=empty
mkdir folder
refuses_alone 66 "folder: a folder without files" train job.yaml data.train=folder
seq 60000 | gzip -nc | tail -c +20 | tr '\n' x | sed '1s/^/\x01/' >garbage
refuses_alone 65 "garbage:1: " train job.yaml data.train=garbage
awk 'BEGIN { srand(1); for (i = 0; i < 20000; i++) print (rand() > 0.5 ? 1 : -1), int(rand() * 9) + 1 ":" rand() }' |
    gzip >whole.gz
head -c 70000 whole.gz >cut.gz
refuses 65 "cut.gz: truncated gzip file" train job.yaml data.train=cut.gz
(head -c 30000 whole.gz; head -c 20000 /dev/zero; tail -c +50001 whole.gz) >damaged.gz
refuses_alone 65 "damaged.gz:" train job.yaml data.train=damaged.gz
(cat good; head -c 100000000 /dev/zero | tr '\0' 1; echo; cat good) >long
refuses 65 "long:5: record longer than" train job.yaml data.train=long
rm long
# as an ordinary user, whom the system can refuse something
user="setpriv --reuid=65534 --regid=65534 --clear-groups env TMPDIR=$here/open"
[ "$(id -u)" -eq 0 ] || user=env
cp "$trireme" tr && chmod 755 tr
if $user ./tr --version >version 2>&1; then
    printf '1 1:1\n' >secret && chmod 0 secret
    mkdir -m 500 readonly && mkdir -m 777 open # which Open MPI needs for itself, too
    [ "$(id -u)" -ne 0 ] || chown 65534 readonly
    refuses1 66 "secret: Permission denied" $user ./tr train job.yaml data.train=secret output=open/run
    refuses1 73 "output readonly/run: cannot be made: Permission denied" $user ./tr $good output=readonly/run
    chmod 700 readonly
else
    skip "what the system refuses: no other user can be had"
fi

# ---- records ----
record '1 0:1' "'0:1': the index is 0" data.index_base=1
record '1 1099511627776:1' "'1099511627776:1': the index is too large"
record '1 -1:1' "'-1:1': the index is negative"
record '1 3:1 2:1' "'2:1': the index is smaller"
record '1 2:1 2:1' "'2:1': the index is the same"
record '1 1:nan' "'1:nan': the value is not finite"
record '1 1:1e999' "'1:1e999': the value is too large"
record 'nan 1:1' "'nan': the label is not finite"
record 'yes 1:1' "'yes': the label is not a number"
record '1 1:' "'1:': the value is missing"
record '1 one:1' "'one:1': the index is not a number"
record '7 1:1' "label 7 is the third kind" solve.method=growing
printf '1 -1:1 2:3\n0 1:1 2:4\n1 1:2 2:9\n' >first # in the first line, too, which tells the format
refuses_alone 65 "first:1: '-1:1': the index is negative" $good data.train=first
printf '1,2 1:1 2:3\n2,3 1:1 2:4\n' >several
refuses_alone 65 "several:1: '1,2': several labels" $good data.train=several
printf '8 1:1\n7 1:1\n' >strange
refuses 65 "data.test: none of its labels (7 ... 8) occurs in data.train, expected some of -1 ... 1" $good data.test=strange
printf '# nothing\n\n' >comments
refuses_alone 66 "comments: there is no record" $good data.test=comments
printf '1 1:1\n1 2:1 x\n-1 2:x\n-1 2:1\n1 1:1\n' >bad
for ranks in 1 3; do
    rm -rf out
    on $ranks "$trireme" train job.yaml data.train=bad data.on_error=skip >err 2>&1 ||
        fail "data.on_error=skip on $ranks ranks: exit $?: $(cat err)"
    grep -q '2 malformed records left out' err || fail "data.on_error=skip on $ranks ranks: says $(cat err)"
    grep -q '"rows": 3,' out/summary.json || fail "data.on_error=skip on $ranks ranks: $(grep rows out/summary.json)"
done

# ---- jobs ----
refuses_alone 66 "nothing.yaml" train nothing.yaml
printf 'name: x\nsolve:\n\tepochs: 3\n' >broken.yaml
refuses 78 "broken.yaml:3: " train broken.yaml
printf 'name: x\nsolve:\n  epoch: 3\n' >key.yaml
refuses_alone 78 "key.yaml:3: unknown key solve.epoch: did you mean solve.epochs?" train key.yaml
printf 'solve: {epochs: many}\n' >type.yaml
refuses_alone 78 "type.yaml:1: solve.epochs is «many»: expected an integer" train type.yaml
refuses 78 "did you mean solve.epochs?" $good solve.epoch=3
refuses_alone 78 "solve.epochs is «0»" $good solve.epochs=0
refuses_alone 78 "solve.rate is «nan»" $good solve.rate=nan
refuses_alone 78 "sync.mode is «bps»" $good sync.mode=bps
refuses_alone 78 "checkpoint.every is «5»: expected no, a time as 30s" $good checkpoint.every=5
refuses_alone 78 "checkpoint.max_time is «soon»: expected no, or a time" $good --max-time soon
refuses_alone 64 "train: --max-time: expected T" $good --max-time
refuses_alone 78 "checkpoint.keep is «0»" $good --max-time=5 checkpoint.keep=0
refuses 64 "«epochs»: expected section.key=value" $good epochs
refuses 78 "needs 9 ranks" $good ranks.groups=9
refuses 78 "with table.filter updates are not merged" $good table.push=merge table.filter=skip
refuses_alone 78 "with sync.mode ssp and asp updates are not merged" $good table.push=merge sync.mode=asp solve.method=sgd
refuses_alone 78 "what servers do with updates of w needs them as messages" $good table.push=merge solve.method=sgd solve.optimizer=adam solve.rate=1
refuses_alone 78 "solve.inner is «1e308»: expected a number above 0 to 1000000" $good solve.method=svrg solve.inner=1e308
refuses_alone 78 "model.alpha is «1e308»: expected a number above 0 to 1000000 or auto" train data.train=good model.type=lda output=out model.alpha=1e308
refuses_alone 78 "model.beta is «1e300»: expected a number above 0 to 1000000" train data.train=good model.type=lda output=out model.beta=1e300
# so many that counting them one by one would not end; the target is reached at once
for method in svrg svrg++ katyusha; do
    timeout -s KILL $patience "$trireme" $good solve.method=$method solve.epochs=1000000000 solve.target=1 output=many >err 2>&1 ||
        fail "10^9 epochs of $method: exit $?: $(tail -1 err)"
done
refuses 78 "data.train is missing" train job.yaml
refuses_alone 78 "solve.method als is for mf, and model.type is auto" $good solve.method=als
refuses_alone 78 "solve.method is «foo»: expected auto, dual, sgd, " $good solve.method=foo
refuses_alone 78 "data.partition vertical needs solve.method sgd" $good data.partition=vertical
refuses 65 "data.features is 2, but the data has feature 4" $good data.features=2
refuses 76 "the objective is not finite any more" $good solve.method=sgd model.type=linear solve.rate=1e30 solve.epochs=90

# ---- output ----
refuses 73 "output good: is a file, expected a folder" $good output=good/run
echo mine >folder/notes
refuses_alone 73 "output folder: holds files" $good output=folder
[ "$(ls folder)" = notes ] || fail "output folder: now holds $(ls folder)"
rm -rf small && mkdir small
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=256k none small 2>err; then
    at_end='umount "$here/small"'
    # the folder, the files of the run and the text fit, the model does not: 200 000 features are 800 kB
    echo '1 1:1 200000:1' | cat good - >wide
    for ranks in 1 3; do
        refuses1 74 "No space left" on $ranks "$trireme" train job.yaml data.train=wide output=small/run
        grep -q '^epoch 3' err || fail "full disk: the training is not reported: $(cat err)"
        for file in small/run/model.h5 small/run/model.txt small/run/summary.json small/run/*.part small/run/*.tmp; do
            [ ! -e "$file" ] || fail "full disk: leaves $file"
        done
        grep -q '"state": "failed"' small/run/status.json && grep -q '"status": 74' small/run/status.json ||
            fail "full disk: status.json: $(cat small/run/status.json)"
        [ "$(tail -1 small/run/metrics.csv | cut -d, -f2)" = 3 ] || fail "full disk: metrics.csv: $(cat small/run/metrics.csv)"
        rm -rf small/run
    done
    umount small && at_end=
else
    skip "a full disk: no file system can be mounted"
fi

# ---- a folder for temporary files that Open MPI would take for two, and remove the first ----
mkdir -p "temporary, other" temporary
touch temporary/precious
TMPDIR="$here/temporary, other" mpirun $quiet -n 1 "$trireme" train data.train=good output=comma >said 2>&1
[ $? -eq 78 ] && grep -q "error: TMPDIR, .*, has a comma" said || fail "TMPDIR with a comma: $(cat said)"
[ -e temporary/precious ] || fail "TMPDIR with a comma: Open MPI has removed another folder"

# ---- commands ----
refuses 64 "unknown command zzz: see trireme help" zzz
refuses_alone 64 "unknown command trian: did you mean train?" trian
refuses_alone 64 "usage: trireme train [JOB.yaml]" train
for ranks in 1 3; do
    on $ranks "$trireme" >said 2>err || fail "without words, on $ranks ranks: exit $?"
    [ "$(grep -c '^Commands:' said)" -eq 1 ] || fail "without words, on $ranks ranks: not one text of help"
done
for command in predict evaluate; do
    refuses1 65 "good: not a model" "$trireme" $command good good
    refuses1 65 "garbage: " "$trireme" $command garbage good
    refuses1 66 "empty: " "$trireme" $command empty good
    refuses1 66 "nothing: No such file" "$trireme" $command nothing good
done
refuses1 65 "garbage:1: " "$trireme" inspect garbage
refuses1 66 "nothing: no such file" "$trireme" inspect nothing
refuses1 66 "empty: " "$trireme" inspect empty
printf 'solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 4\nbias -1\nw\n1\n2\nthree\n4\n' >model.txt
for command in predict evaluate; do refuses1 65 "model.txt:9: " "$trireme" $command model.txt good; done
refuses1 65 "model.txt:9: " "$trireme" inspect model.txt
