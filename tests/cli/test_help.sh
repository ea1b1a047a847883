#!/bin/sh
# trireme help, plot, manual pages and completion: all topics exist, misspelt words are understood, lines fit the
# terminal.
. "$(dirname "$0")/lib.sh"

expect 0 "Commands:" help
expect 0 "Commands:"
expect 0 "Commands:" --help
for topic in $("$trireme" help | sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p' | grep -v '^trireme$\|^mpirun$'); do
    expect 0 "" help "$topic"
done
expect 0 "trireme train [JOB.yaml]" help train
expect 0 "sigma, optimizer" help job
expect 0 "solve.rate" help job all
expect 0 "solve.rate" help job solve
expect 0 "solve.rate" help job solve.rate
# the longest help is complete
expect 0 "weights of scaled" help job data.scale
expect 0 "solve.rate" help solve.rate
expect 0 "stages.NAME.parallelism" help job stages
expect 0 "tasks.NAME.after" help job tasks
expect 0 "stages.NAME.clocks" help job stages.full.clocks
expect 0 "tasks.NAME.run" help tasks.NAME.run
expect 64 "did you mean tasks.one.after?" help job tasks.one.afer
expect 0 "trireme train [JOB.yaml]" train --help
for key in model.type solve.method; do # a pipe, and a terminal of 80 columns without COLUMNS: all values, no line too wide
    "$trireme" help job $key | cat >all
    (unset COLUMNS; PAGER=cat script -qc "stty cols 80; $trireme help job $key" typescript >/dev/null </dev/null)
    for value in kmeans trees lloyd boost logcosh dual; do
        case $key/$value in model.type/lloyd | model.type/boost | model.type/dual | solve.method/*[mt]*s | solve.method/logcosh) continue ;; esac
        grep -qw "$value" all && grep -qw "$value" typescript || fail "help job $key: lacks $value"
    done
    tr -d '\r' <typescript | awk '!/^Script/ && length > 80 { exit 1 }' || fail "help job $key is wider than 80"
done
expect 0 "first_row" generate --help
# one list of commands: each has help, a manual page and completion (trireme help is a command itself)
listed=$("$trireme" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$listed" | wc -l)" -ge 12 ] || fail "hardly any commands: $listed"
for command in $listed; do
    "$trireme" help --complete "$command" | grep -qx "$command" || fail "$command is not completed"
    "$trireme" "$command" --help | head -1 | grep -q "^trireme $command" || fail "$command --help"
done
# errors of all commands have one form
expect 64 "count: --top is «many»: expected a number from 0 to" count rows.csv --top many
expect 64 "count: --top: expected a number from 0 to" count rows.csv --top
expect 64 "count: --top is «few»" count rows.csv --top 1 --top=few
expect 64 "count: unknown option --tpo: did you mean --top?" count rows.csv --tpo 3
expect 64 "count: expected files: see trireme help count" count
expect 64 "evaluate: --json has no value" evaluate m rows.svm --json=yes
expect 64 "inspect: unexpected b: expected one FILE" inspect a b
expect 64 "sweep: --folds is «-1»: expected a number from 0 to 1024" sweep model.l2=1,2 --folds -1
expect 64 "predict: --top is «-1»: expected a number from" predict m rows.svm --top -1
if [ -c /dev/full ]; then
    for topic in train job "job all"; do
        "$trireme" help $topic >/dev/full 2>err; one_error "help $topic where nothing can be written" $? 74 "No space left"
    done
fi
expect 64 "did you mean train?" help tran
expect 64 "no help on zzz" help zzz
expect 64 "did you mean solve" help job solv
expect 64 "too many words" help train now
expect 64 "did you mean train?" trian
expect 64 "unknown command zzz" zzz
expect 0 "MPI:      Open MPI" --version
expect 0 "HDF5:     1." --version

# as wide as the terminal, where one key has a line and its meaning another if it is narrow; through a pager
for columns in 60 80 110; do
    COLUMNS=$columns "$trireme" help job all >all
    wide=$(awk -v n=$columns '/^  [a-z]/ { next } { gsub(/[\200-\277]/, "") } length($0) > n' all | head -3)
    [ -z "$wide" ] || fail "help job all: wider than $columns: $wide"
    [ "$(grep -c '^  [a-z]*\.[a-z_.A-Z]* ' all)" -gt 100 ] || fail "help job all: lacks keys"
done
COLUMNS=80 PAGER='sed s/^/paged:/' script -qc "$trireme help job sync" typescript >/dev/null </dev/null
grep -q '^paged:sync: consistency' typescript || fail "no pager: $(head -3 typescript)"

# nothing that is said on a terminal is wider than it: lines that tmux has wrapped are fewer when it joins them
if command -v tmux >/dev/null; then
    "$trireme" generate ctr -o clicks.svm rows=500 features=100 nonzeros=5 2>/dev/null
    for columns in 60 80 200; do
        for words in "train data.train=clicks.svm data.test=20% solve.epochs=3 output=m" "evaluate m clicks.svm" "inspect m" "help train"; do
            terminals=$((${terminals:-0} + 1))
            tmux -S "$here/tmux.$terminals" -f /dev/null new-session -d -x $columns -y 300 \
                "PAGER=cat '$trireme' $words; touch '$here/done'; sleep 60"
            for _ in $(seq 300); do [ ! -e done ] || break; sleep 0.1; done
            rm -f done
            tmux -S "$here/tmux.$terminals" capture-pane -p | grep . >lines
            tmux -S "$here/tmux.$terminals" capture-pane -pJ | grep . >joined
            tmux -S "$here/tmux.$terminals" kill-server
            [ "$(wc -l <lines)" -gt 4 ] || fail "trireme $words on a terminal: $(cat lines)"
            [ "$(wc -l <lines)" -eq "$(wc -l <joined)" ] || fail "trireme $words is wider than $columns: $(awk -v n=$columns 'length > n' joined | head -3)"
        done
    done
fi

# plot: of two runs, with all that a folder may be called
mkdir "a'b" c
printf 'time,epoch,clock,objective,gap,test_metric,bytes_pulled,bytes_pushed\n1,1,1,0.7,,,5,5\n2,2,2,0.6,,,9,9\n' | tee "a'b/metrics.csv" >c/metrics.csv
if command -v gnuplot >/dev/null; then
    expect 0 "a'b" plot "a'b" c
    # draws WORDS WORD…: trireme plot WORD… has the words in its drawing, and no warning. gnuplot 6 draws in dots of
    # Braille, of which the blank one parts words
    draws() {
        words=$1; shift
        "$trireme" plot "$@" >drawn 2>&1 || fail "plot $*: exit $?"
        sed 's/⠀/ /g' drawn | grep -qF "$words" && ! grep -qi warning drawn || fail "plot $*: $(cat drawn), expected «$words»"
    }
    draws "MB pulled and pushed" c --what bytes --over epoch
    # the same rate all the time, and one evaluation alone: gnuplot has nothing to say about empty ranges
    mkdir flat
    printf 'time,epoch,clock,objective,gap,test_metric\n1,1,1,0.7,0.1,0.5\n' >flat/metrics.csv
    draws objective flat
    draws gap flat --what gap
    expect 0 "" plot "a'b" c -o both.svg
    for term in foot dumb; do TERM=$term script -qc "$trireme plot c" $term.screen >/dev/null </dev/null; done
    ! grep -q "$(printf '\033P')" dumb.screen && grep -q objective dumb.screen || fail "plot: no characters: $(head -3 dumb.screen)"
    if gnuplot -e 'exit status !strstrt(GPVAL_TERMINALS, "sixelgd")'; then
        grep -q "$(printf '\033P')" foot.screen || fail "plot: no pixels on a terminal that takes them"
    fi
    grep -q '</svg>' both.svg || fail "plot: no SVG"
    expect 66 "c: nothing of that has been evaluated yet" plot c --what metric
    # marks: two restarts from top to bottom, and a checkpoint, in both diagrams of two runs
    printf 'when,time,epoch,updates,rank,event,text\n1,1.25,1,1,,checkpoint,x\n2,1.5,1,1,,restart,x\n3,1.75,1,1,2,failure,x\n' >c/events.csv
    printf '{\n  "rows": 1000,\n  "ranks": 4,\n  "train_seconds": 3\n}\n' >c/summary.json
    sed 's/4/1/; s/: 3/: 9/' c/summary.json >"a'b/summary.json"
    draws "rows per second" c --what=rows
    draws "in proportion" c "a'b" --what=scale
    check "plot without marks" "$trireme" plot "a'b" -o plain.svg
    check "plot with marks" "$trireme" plot c -o marks.svg
    [ "$(($(grep -c '<path' marks.svg) - $(grep -c '<path' plain.svg)))" -eq 2 ] ||
        fail "plot: a restart and a checkpoint are $(($(grep -c '<path' marks.svg) - $(grep -c '<path' plain.svg))) paths more"
    expect 66 "no ranks and train_seconds" plot c d --what=scale
else
    expect 71 "gnuplot is not installed" plot c
fi
expect 66 "d: no run" plot d
expect 64 "expected objective, metric" plot c --what=speeed
expect 64 "ends in .svg, .png or .pdf" plot c -o both.gif

# a manual page for each command, without a word from groff
build=$(dirname "$trireme")
for page in trireme.yaml.5 trireme-files.5 trireme.1 $("$trireme" help --complete "" | grep -vx 'help\|job\|from\|output\|status' | sed 's/.*/trireme-&.1/'); do
    [ -s "$build/$page" ] || { fail "no manual page $page"; continue; }
    command -v groff >/dev/null || continue
    groff -k -man -Tutf8 -wall -rLL=80n "$build/$page" >paged 2>complaints || fail "groff: $page"
    [ ! -s complaints ] || fail "$page: $(head -1 complaints)"
done
grep -q 'solve\.epochs.*integer' "$build/trireme.yaml.5" || fail "trireme.yaml.5 lacks solve.epochs"

# completes WORDS CANDIDATES: bash offers these behind the words, the last of which is begun
completes() {
    offered=$(TRIREME=$trireme bash -c '. "$0"; trireme() { "$TRIREME" "$@"; }; COMP_LINE=$1; COMP_POINT=${#1}; _trireme; echo "${COMPREPLY[*]}"' \
        "$(dirname "$jobs")/tools/completion/trireme" "$1")
    [ "$offered" = "$2" ] || fail "completion of «$1»: «$offered», expected «$2»"
}
completes_in_others() { # zsh and fish, where they are
    mkdir -p bin functions && ln -sf "$trireme" bin/trireme && cp "$(dirname "$jobs")/tools/completion/_trireme" functions
    while IFS=: read -r line words; do
        command -v fish >/dev/null || continue
        offered=$(PATH=$PWD/bin:$PATH HOME=$here fish -c 'source $argv[1]; complete -C $argv[2]' "$(dirname "$jobs")/tools/completion/trireme.fish" \
            "trireme $line" | tr '\n' ' ')
        [ "$offered" = "$words " ] || fail "fish completes «$line»: «$offered», expected «$words»"
    done <<'END'
ev:evaluate
train solve.tar:solve.target= solve.target_gap=
train sync.mode=as:sync.mode=asp
train a.yaml data.train=fi:data.train=file.svm
END
    command -v zsh >/dev/null || return
    PATH=$PWD/bin:$PATH timeout -s KILL $patience zsh -f "$(dirname "$jobs")/tests/cli/complete.zsh" "$PWD/functions" "trireme ev" "trireme train solve.tar" \
        "trireme train sync.mode=as" "trireme train a.yaml data.train=fi" "trireme train solve.epo" >said
    printf '%s\n' evaluate "train solve.target" "train sync.mode=asp" "train a.yaml data.train=file.svm" "train solve.epochs=" |
        cmp -s - said || fail "zsh completes: $(cat said)"
}
touch file.svm
completes_in_others
completes "trireme ev" "evaluate"
completes "trireme train solve.tar" "solve.target= solve.target_gap="
completes "trireme train sync.mode=as" "asp"
completes "trireme train a.yaml data.train=fi" "file.svm"
completes "trireme train fi" "file.svm"
completes "trireme predict m --marg" "--margin"
completes "trireme run --hos" "--hosts --hostfile"
completes "trireme generate ct" "ctr"
completes "trireme generate dense sp" "spread="
completes "trireme generate dense format=l" "libsvm"
completes "trireme generate dense n" "noise="
completes "trireme plot --over e" "epoch"
completes "trireme count rows.csv data.mis" "data.missing="
completes "trireme convert a.csv data.form" "data.format="
completes "trireme convert a.csv data.ord" ""
completes "trireme train model.type=log" "logistic logcosh"
completes "trireme help job chec" "checkpoint"

# ---- names of parameters in other programs ----
for pair in num_leaves=31:model.leaves model.lambda=1:model.l2 --learning_rate=0.1:solve.rate=0.1 model.colsample_bytree=0.5:solve.column_share n_estimators=5:solve.epochs tasks.a.max_bin=9:tasks.a.model.bins; do
    "$trireme" train data.train=x ${pair%:*} >said 2>&1
    grep -q "did you mean ${pair##*:}?" said || fail "${pair%:*}: $(cat said)"
done
for tool in lightgbm xgboost scikit-learn liblinear vw; do
    "$trireme" help from $tool | grep '^  ' >said || fail "help from $tool"
    while read -r name key; do # each key exists
        case $key in *.*) "$trireme" help job "$key" >/dev/null 2>&1 || fail "help from $tool: $name: no key $key" ;; esac
    done <said
done
refuses "help from" 64 "did you mean xgboost?" "$trireme" help from xboost
