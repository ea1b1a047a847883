#!/bin/sh
# Golden models: every file of jobs/, trained on small data with sync.mode bsp on 1, 2 and 5 ranks, gives the arrays of
# tests/golden/models.txt: those of model.h5, of predict, and of metrics.csv without times. So do some of them with other
# losses and methods, on 2 ranks.
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
    make claims -o datasets/claims.csv rows=2k
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
    news-topics) echo sync.mode=bsp solve.epochs=12 model.topics=20 ;;     # the priors are fitted after ten passes
    movielens) echo sync.mode=bsp solve.epochs=3 model.rank=8 ;;
    svrg) echo sync.mode=bsp solve.epochs=9 stages.full.parallelism=all ;;
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

# Losses and methods that no job file has: NAME JOB SETTING…, each on two ranks.
variants() {
    for loss in svm l2svm linear huber quantile; do
        [ $loss = quantile ] || echo $loss-auto a9a model.type=$loss
        echo $loss-sgd a9a model.type=$loss solve.method=sgd
        [ $loss = quantile ] || echo $loss-newton a9a model.type=$loss solve.method=newton
    done
    # three epochs are not enough to be better than the best constant
    for method in newton dual; do echo quantile-$method a9a model.type=quantile solve.method=$method solve.epochs=40; done
    echo logistic-newton a9a solve.method=newton
    echo logistic-katyusha a9a solve.method=katyusha solve.epochs=9
    echo logistic-svrg++ a9a solve.method=svrg++ solve.epochs=17
    # with parallelism auto the measured speed decides
    echo logistic-growing a9a solve.method=growing solve.phases=2 solve.epochs=6 stages.phase-1.parallelism=1 stages.phase-2.parallelism=2
    for loss in logistic l2svm linear; do
        echo $loss-descent a9a model.type=$loss model.l1=1e-3 solve.method=descent solve.epochs=9
    done
    for optimizer in momentum adagrad adam; do
        echo logistic-$optimizer a9a solve.method=sgd solve.optimizer=$optimizer
    done
    clusters="data.train=clusters/train.csv data.test=clusters/test.csv data.label=last" # a count
    for method in sgd newton; do
        echo poisson-$method a9a model.type=poisson solve.method=$method $clusters
    done
    for objective in absolute huber quantile; do echo trees-$objective flights-trees model.objective=$objective; done
    echo trees-poisson flights-trees model.objective=poisson data.label=TaxiOut
    echo als movielens solve.method=als
    echo als-implicit movielens solve.method=als model.implicit=yes
}

# predicted NAME JOB: the options of predict, and its data
predicted() {
    case $1 in
    poisson-*) echo datasets/clusters/test.csv; return ;;
    esac
    case $2 in
    a9a | ensemble | straggler | svrg) echo --margin datasets/a9a/a9a.t.gz ;;
    ctr) echo --margin datasets/ctr.svm ;;
    ctr-small | lasso) echo --margin datasets/ctr-small.test.svm ;;
    claims) echo --margin datasets/claims.csv ;;
    kmeans) echo --distance datasets/clusters/test.csv ;;
    higgs-trees) echo --margin datasets/events.test.csv ;;
    letter-trees) echo --margin datasets/letter/letter-recognition.data ;;
    flights-trees) echo --margin datasets/hflights/hflights.csv.gz ;;
    movielens) echo datasets/ml-100k/u1.test.gz ;;
    multiclass) echo --margin datasets/20news-classes/test.svm.gz ;;
    news-topics) echo datasets/20news/docword.20news.test.txt.gz ;;
    *) fail "jobs/$2.yaml: predicted() of $0 does not know its data" ;;
    esac
}

# selected NAME JOB: whether JOBS and the data allow it; sets the options of predict
selected() {
    case " ${JOBS:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
    options=$(predicted "$1" "$2")
    [ -e "${options##* }" ] || { [ "$folder" != new ] || skip "$1: no ${options##* }" >&2; return 1; }
}

# predictions FOLDER: of all models in it
predictions() {
    find "$1" -name model.h5 >found
    while read -r file; do
        # shellcheck disable=SC2086 # words on purpose
        check "$1: predict" "$trireme" predict "$file" $options -o "${file%/*}/predictions" </dev/null
    done <found
}

# models PROGRAM FOLDER: trains all jobs and variants into FOLDER/NAME/RANKS
models() {
    trireme=$1 folder=$2
    for file in "$jobs"/*.yaml; do
        job=$(basename "$file" .yaml)
        selected "$job" "$job" || continue
        mkdir -p "$folder/$job"
        for ranks in 1 2 5; do
            # shellcheck disable=SC2046
            run "$folder/$job/$ranks" $ranks "$jobs/$job.yaml" $(settings "$job" $ranks) || continue
            rm "$folder/$job/$ranks.out"
            predictions "$folder/$job/$ranks"
        done
    done
    variants >all
    for job in $(cut -d' ' -f2 all | sort -u); do
        while read -r name base more; do
            [ "$base" = "$job" ] && selected "$name" "$job" && echo "$(echo "$name" | tr + -) $(settings "$job" 2) $more"
        done <all >lines
        # tasks with one table share its rows, and the flags of its columns are then those of test rows, too
        case $job in *-trees) most=1 ;; *) most=1000 ;; esac
        rm -f group.* && split -l $most lines group.
        for group in group.*; do [ ! -s "$group" ] || run_all 2 "$jobs/$job.yaml" <"$group"; done
        while read -r name base more; do
            trained=$(echo "$name" | tr + -)
            [ "$base" = "$job" ] && selected "$name" "$job" && [ -e "$trained/model.h5" ] || continue
            mkdir -p "$folder/$name" && mv "$trained" "$folder/$name/2"
            predictions "$folder/$name/2"
        done <all
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
            # selected by JOBS: the lines of others stay
            awk 'NR == FNR { new[$1]; next } !/^#/ && !($1 in new)' new.list "$golden" | LC_ALL=C sort -s -k 1,1 - new.list
        } >updated && cp updated "$golden"
    elif [ "$action" = compare ]; then
        compared "$golden" new.list
    fi
fi
