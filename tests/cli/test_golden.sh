#!/bin/sh
# Golden models: every file of jobs/, trained on small data with sync.mode bsp on 1, 2 and 5 ranks, gives the arrays of
# tests/golden/models.txt: those of model.h5, of predict, and of metrics.csv without times.
#
#   sh tests/cli/test_golden.sh [PROGRAM]                   compares PROGRAM (build/trireme) with the file
#   sh tests/cli/test_golden.sh --update [PROGRAM]          writes the file
#   sh tests/cli/test_golden.sh --against OTHER [PROGRAM]   compares two programs on this machine, bit by bit, where two
#                                                           runs of OTHER agree
#
# JOBS="a9a lasso" in the environment selects jobs. The file holds for all processors: vector instructions, which round
# differently, are switched off. --against uses those of the machine.
golden=$(realpath "$(dirname "$0")/../golden")/models.txt
action=compare other=
case ${1:-} in
--update) action=update; shift ;;
--against) action=against other=$(realpath "${2:?--against needs a program}") && shift 2 || exit 66 ;;
esac
set -- "${1:-$(dirname "$0")/../../build/trireme}"
script=$(realpath "$(dirname "$0")/golden.py")
. "$(dirname "$0")/lib.sh"
command -v h5dump >/dev/null || { skip "h5dump is not installed"; exit 77; }

# thin FILE.gz N FOLDER: every N-th line of a dataset
thin() { mkdir -p "$3" && gzip -cd "$data/$1" | awk -v n="$2" 'NR % n == 1' | gzip -n >"$3/$(basename "$1")"; }

# documents FILE.gz N FOLDER: every N-th document
documents() {
    mkdir -p "$3"
    gzip -cd "$data/$1" | awk -v n="$2" '
        NR == 1 { documents = int($1 / n) } NR == 2 { words = $1 }
        NR > 3 && $1 % n == 0 { line[++lines] = $1 / n " " $2 " " $3 }
        END { print documents; print words; print lines; for (i = 1; i <= lines; i++) print line[i] }' |
        gzip -n >"$3/$(basename "$1")"
}

# small_data: datasets/ as jobs need them, smaller
small_data() {
    mkdir datasets
    cp -r "$(dirname "$jobs")/datasets/clusters" datasets
    make() { "$trireme" generate "$@" >made 2>&1 || fail "generate $*: $(cat made)"; }
    make ctr -o datasets/ctr-small.svm rows=4k features=10k nonzeros=30
    make ctr -o datasets/ctr-small.test.svm rows=1k first_row=4k features=10k nonzeros=30
    make ctr -o datasets/ctr.svm rows=5k features=20k nonzeros=50
    make events -o datasets/events.train.csv rows=5k
    make events -o datasets/events.test.csv rows=1k first_row=5k
    [ ! -d "$data/a9a" ] || for file in a9a a9a.t; do thin a9a/$file.gz 4 datasets/a9a; done
    [ ! -d "$data/ml-100k" ] || for file in u1.base u1.test; do thin ml-100k/$file.gz 4 datasets/ml-100k; done
    [ ! -d "$data/letter" ] || {
        mkdir datasets/letter
        awk 'NR % 5 == 1' "$data/letter/letter-recognition.data" >datasets/letter/letter-recognition.data
    }
    [ ! -d "$data/hflights" ] || thin hflights/hflights.csv.gz 50 datasets/hflights
    [ ! -d "$data/20news" ] || {
        for part in train test; do
            documents 20news/docword.20news.$part.txt.gz 10 datasets/20news
            awk 'NR % 10 == 0' "$data/20news/labels.$part.txt" >datasets/20news/labels.$part.txt
        done
        cp "$data/20news/vocab.20news.txt" datasets/20news
        mkdir tools && cp "$(dirname "$jobs")/tools/data" tools && touch meson.build
        tools/data 20news-classes
    }
    unset TRIREME_DATA
}

# settings JOB RANKS: what the job needs on so few ranks, and what makes it short
settings() {
    case $1 in
    *-trees) echo solve.epochs=10 ;;
    lasso) echo sync.mode=bsp solve.epochs=3 solve.path=5 model.l2=0.01 ;; # else the last weights are ill-conditioned
    news-topics) echo sync.mode=bsp solve.epochs=12 model.topics=20 ;; # the priors are fitted after ten passes
    movielens) echo sync.mode=bsp solve.epochs=3 model.rank=8 ;;
    svrg) echo sync.mode=bsp solve.epochs=3 stages.full.parallelism=all ;;
    ensemble) echo sync.mode=bsp tasks.sparse.solve.epochs=3 ;;
    straggler) echo sync.mode=bsp solve.epochs=3 solve.target=none experiment.clock=0.001 ;;
    *) echo sync.mode=bsp solve.epochs=3 ;;
    esac
    case $1.$2 in
    straggler.1) echo ranks.layout=auto ranks.servers=0 ranks.groups=1 ;;
    straggler.2) echo ranks.layout=colocated ranks.servers=2 ranks.groups=2 ;;
    straggler.5) echo ranks.groups=4 ;;
    ensemble.5) echo tasks.plain.ranks=2 tasks.sparse.ranks=3 ;;
    esac
}

# predicted JOB: the options of predict, and its data
predicted() {
    case $1 in
    a9a | ensemble | straggler | svrg) echo --margin datasets/a9a/a9a.t.gz ;;
    ctr) echo --margin datasets/ctr.svm ;;
    ctr-small | lasso) echo --margin datasets/ctr-small.test.svm ;;
    kmeans) echo --distance datasets/clusters/test.csv ;;
    higgs-trees) echo --margin datasets/events.test.csv ;;
    letter-trees) echo --margin datasets/letter/letter-recognition.data ;;
    flights-trees) echo --margin datasets/hflights/hflights.csv.gz ;;
    movielens) echo datasets/ml-100k/u1.test.gz ;;
    multiclass) echo --margin datasets/20news-classes/test.svm.gz ;;
    news-topics) echo datasets/20news/docword.20news.test.txt.gz ;;
    *) fail "jobs/$1.yaml: predicted() of $0 does not know its data" ;;
    esac
}

# models PROGRAM FOLDER: trains all jobs into FOLDER/JOB/RANKS
models() {
    for file in "$jobs"/*.yaml; do
        job=$(basename "$file" .yaml)
        case " ${JOBS:-$job} " in *" $job "*) ;; *) continue ;; esac
        options=$(predicted "$job")
        [ -e "${options##* }" ] || { [ "$2" != new ] || skip "$job: no ${options##* }"; continue; }
        for ranks in 1 2 5; do
            into=$2/$job/$ranks
            mkdir -p "$2/$job"
            trireme=$1
            # shellcheck disable=SC2046 # words on purpose
            run "$into" $ranks "$file" $(settings "$job" $ranks) || continue
            rm "$into.out"
            find "$into" -name model.h5 >found
            while read -r model; do
                # shellcheck disable=SC2086
                check "$job, $ranks ranks: predict" "$1" predict "$model" $options -o "${model%/*}/predictions" </dev/null
            done <found
        done
    done
}

compared() { "$script" compare "$@" || bad=1; }

program=$trireme
small_data
if [ "$action" = against ]; then
    models "$other" old
    models "$other" again
    models "$program" new
    for folder in old again new; do "$script" list $folder --bits >$folder.list || bad=1; done
    compared old.list new.list again.list
else
    export TRIREME_CPU=plain GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F
    models "$program" new
    "$script" list new >new.list || bad=1
    if [ "$action" = update ] && [ $bad -eq 0 ]; then
        {
            echo "# Written by tests/cli/test_golden.sh --update. Job, ranks, array, type, shape, then the value of a scalar, the"
            echo "# checksum of integers and text, or of real numbers: sum, norm, three projections, how many are not finite."
            cat new.list
        } >"$golden"
    elif [ "$action" = compare ]; then
        compared "$golden" new.list
    fi
fi
exit $bad
