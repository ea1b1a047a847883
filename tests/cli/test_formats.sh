#!/bin/sh
# Data in HDF5: the output of trireme convert trains the same model bit by bit, on one and on two ranks; so do files
# written by h5py; errors are one line.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { srand(3); print "a,b,c,kind" >"table.csv"
    for (i = 0; i < 900; i++) {
        a = rand() - 0.5; b = rand() * 3; c = int(rand() * 4); y = a + b / 6 > 0.3 ? 1 : -1
        printf "%.9g,%.9g,%d,%d\n", a, b, c, y >"table.csv"
        printf "%d %d:%.9g %d:1\n", y, 1 + int(rand() * 40), a, 50 + c >"sparse.svm"
        printf "%d 1:%.9g 2:%.9g 3:%d\n", y, a, b, c >"full.svm"
        printf "%d %d:1 %d:1\n", y, int(rand() * 9), 10 + int(rand() * 90) >"ones.svm"
        print (i % 7 == 0) "," (i % 5 == 0 ? a : 0) "," 0 "," (i % 11 == 1) "," y >"holes.csv" } }'

# words, in quotes and late, missing numbers, words and labels, weights, a column that is left out
awk 'BEGIN { srand(5); print "city;\"the \"\"size\"\"\";kind;weight;note;late;price"
    for (i = 0; i < 700; i++)
        print substr("RomeOsloNaplNA  ", 1 + 4 * int(4 * rand()), 4) ";" (i % 9 ? 10 * rand() : "?") ";\"k;" int(5 * rand()) "\";" int(3 * rand()) \
            ";n" i ";" (i < 650 ? i % 7 : "x" i % 3) ";" (i % 50 == 4 ? "" : i % 3 ? "dear" : "cheap") }' >words.csv

# The model of a table is that of the file to which it is converted: lines NAME TABLE SETTING…
cat >tables <<'END'
table table.csv solve.epochs=5
sparse sparse.svm solve.epochs=5
full full.svm solve.epochs=5
ones ones.svm solve.epochs=5 solve.method=newton
holes holes.csv solve.epochs=5
clusters table.csv model.type=kmeans model.clusters=3 data.label=last
words words.csv data.columns=note:ignore data.weight=weight data.cross=city*late solve.epochs=5
END
for table in table.csv sparse.svm full.svm ones.svm holes.csv words.csv; do
    check "$table: convert" "$trireme" convert $table "${table%.*}.h5"
    [ ! -e "${table%.*}.h5.part" ] || fail "$table: ${table%.*}.h5.part is left"
done
for ranks in 1 2; do
    run_all $ranks /dev/null <<END
$(while read -r name table settings; do
    echo "text-$name data.train=$table data.order=file sync.mode=bsp $settings"
    echo "hdf5-$name data.train=${table%.*}.h5 data.order=file sync.mode=bsp $settings"
done <tables)
END
    while read -r name table _; do
        [ ! -f text-$name/model.txt ] || same_model text-$name hdf5-$name
        "$trireme" predict text-$name "$table" >predicted 2>&1 || fail "$table: predict: $(cat predicted)"
        "$trireme" predict hdf5-$name "${table%.*}.h5" 2>&1 | cmp -s - predicted || fail "$table: other predictions on $ranks ranks"
        counts='s/^training data: *\([0-9]* rows, [0-9]*\) [a-z]*, \([0-9]*\).*/\1, \2/p'
        is "$table" "$(sed -n "$counts" text-$name.out)" "$(sed -n "$counts" hdf5-$name.out)"
    done <tables
done
mv text-words text # the last one
"$trireme" predict text words.h5 | cmp -s - predicted || fail "words.h5 by the model of words.csv"
"$trireme" count words.csv --top 9 >out; "$trireme" count words.h5 --top 9 | cmp -s - out || fail "words.h5: count: $(cat out)"
grep -q '^late  *category  10 different' out || fail "words.csv: count: $(cat out)"
run hdf5 1 data.train=words.h5 data.label=city data.columns="note:ignore,weight:number" data.positive=Rome data.hash=2^10
check "words.h5" "$trireme" convert words.h5 words2.h5 && cmp -s words.h5 words2.h5 || fail "words.h5 is converted into another"
echo "a,b,c" >header.csv
expect 66 "header.csv: there is no record in it" train data.train=header.csv
expect 66 "header.csv: there is no record in it" convert header.csv out.h5
words="data.columns=note:ignore data.weight=weight data.cross=city*late solve.method=newton data.scale=none data.test=words.csv sync.mode=bsp"
run text 2 data.train=words.csv data.partition=horizontal $words
for start in first second; do
    run disk 2 data.train=words.csv data.storage=disk data.scratch=. data.memory=64K $words
    cmp -s text/model.txt disk/model.txt || fail "words.csv on a disk, $start start: another model"
done
grep -q 'found on disk' disk.out || fail "words.csv on a disk: $(cat disk.out)"
expect 65 "words.h5: column kind is one of words in this file, expected numbers" train data.train=words.h5 data.columns=kind:number
expect 65 "words.h5: column weight is one of numbers in this file, expected words" train data.train=words.h5 data.columns=weight:category
expect 65 "words.csv: not an HDF5 file, other than words.h5" train data.train=words.h5,words.csv
expect 65 "table.h5: unknown column a" train data.train=words.h5,table.h5
expect 65 "table.h5: there is no column city" predict text table.h5
h5dump -H table.h5 | grep -q indptr && fail "table.csv: stored as lists"
h5dump -H full.h5 | grep -q indptr && fail "full.svm: stored as lists"
h5dump -d X/data ones.h5 | grep -q H5T_STD_U8LE || fail "ones.svm: values of more than a byte"

# LIBSVM as tools for ranking, Windows and C++ programs write it
sed 's/^\(-*1\) /\1 qid:7 /' sparse.svm >query.svm
{ printf '\357\273\277'; sed 's/$/ # a comment/' sparse.svm; } >marked.svm
run text 1 data.train=sparse.svm solve.epochs=5
for odd in query marked; do
    run odd 1 data.train=$odd.svm solve.epochs=5 && cmp -s odd/model.txt text/model.txt || fail "$odd.svm: another model"
    [ "$(grep -c '^note: .*qid' odd.out)" = $([ $odd = query ] && echo 1 || echo 0) ] || fail "$odd.svm: $(grep note odd.out)"
    "$trireme" predict text $odd.svm >predicted 2>&1; "$trireme" predict text sparse.svm | cmp -s - predicted || fail "$odd.svm: $(head -1 predicted)"
done
echo '1 5000000000:1' >wide.svm
expect 65 "wide.svm:1: '5000000000:1': the index is too large, expected at most 4294967294" train data.train=wide.svm
printf '1 3:1 4000000000:1\n2 5:1\n3 6:1\n' >vast.svm
expect 65 "data.train: 4000000000 features, 3 weight" train data.train=vast.svm table.storage=hash
# weights that are zeros are neither looked for, nor do they take room on the disk
printf '1 3:1 300000000:1\n-1 5:1\n1 300000000:2\n-1 5:2 6:1\n' >vast.svm
for ranks in 1 2; do
    run vast $ranks data.train=vast.svm table.storage=hash || continue
    [ "$(du -k vast/model.h5 | cut -f 1)" -lt 20000 ] || fail "vast.svm: model.h5 takes $(du -k vast/model.h5)"
    check "vast.svm: predict" "$trireme" predict vast vast.svm
    [ "$(tr '\n' ' ' <out)" = "1 -1 1 -1 " ] || fail "vast.svm: predicts $(cat out)"
    check "vast.svm: inspect" "$trireme" inspect vast --top 1
    [ "$(sed -n 's/^weights  *\([0-9]*\) not zero.*/\1/p; s/^  *\([0-9]*\)  [+-].*/\1/p' out | tr '\n' ' ')" = "4 300000000 5 " ] ||
        fail "vast.svm: inspect says $(cat out)"
done

# packed files are told by their first bytes; a folder means its files
mkdir folder; cp sparse.svm folder/a; : >folder/.hidden
run even 1 data.train=folder solve.epochs=5 && cmp -s even/model.txt text/model.txt || fail "folder: another model"
for tool in gzip bzip2 xz zstd lz4; do
    command -v $tool >command || continue
    $tool -c <sparse.svm >packed
    run odd 1 data.train=packed solve.epochs=5 && cmp -s odd/model.txt even/model.txt || fail "$tool: another model"
    run odd 2 data.train=packed solve.epochs=5
    "$trireme" predict text packed 2>&1 | cmp -s - predicted || fail "$tool: other predictions"
    head -c 3000 packed >short
    expect 65 "short: truncated" train data.train=short
    check "$tool: convert" "$trireme" convert packed packed.h5
    h5dump -d X/data packed.h5 | sed 1d >one; h5dump -d X/data sparse.h5 | sed 1d | cmp -s - one || fail "$tool: convert: other values"
done

# several files and formats that are HDF5 already; a file written for one model serves another
expect 65 "HDF5 file, expected" convert sparse.svm sparse.h5 twice.h5
check "two files" "$trireme" convert sparse.svm ones.svm twice.h5
grep -q "1800 rows" out || fail "two files: $(cat out)"
awk 'BEGIN { s = "x"; while (length(s) < 8000) s = s s; print "a,y"; for (r = 0; r < 5500; r++) print r s "," r % 2 }' >long.csv
check "texts of 45 MB" "$trireme" convert long.csv long.h5
check "of HDF5" "$trireme" convert sparse.h5 again.h5
h5dump -d X/data sparse.h5 | sed 1d >one; h5dump -d X/data again.h5 | sed 1d | cmp -s - one || fail "converted again: other values"
check "no labels" "$trireme" convert full.svm plain.h5 && h5dump -d y plain.h5 >out || fail "full.svm: no labels"
check "no labels" "$trireme" convert table.csv plain.h5 data.label=none && expect 78 "data.train has no labels" train data.train=plain.h5
run cut 1 data.train=sparse.h5 data.test=10% solve.epochs=3
run text 1 data.train=sparse.svm data.test=10% solve.epochs=3 && cmp -s text/model.txt cut/model.txt || fail "10 % of sparse.h5 are other rows"
run text 1 data.train=table.csv data.test=10% solve.epochs=3
run odd 2 data.train=table.h5 data.test=10% solve.epochs=3
[ "$(grep -o '^test data: *[0-9]* ' text.out)" = "$(grep -o '^test data: *[0-9]* ' odd.out)" ] || fail "10 % of table.h5 are other rows"
holds "10 % are held out" "$(sed -n 's/^test data: *\([0-9]*\) rows.*/\1/p' cut.out) > 50"

# files that h5py writes: single and double precision, whole numbers, truth values, packed chunks, texts beside them
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
    /usr/bin/python3 - <<'END' || fail "h5py"
import h5py, numpy as np
table = np.loadtxt("table.csv", delimiter=",", skiprows=1, dtype="f8")
x, y = table[:, :3].astype("f4"), table[:, 3]
rows = [np.array(line.split()[1:]) for line in open("sparse.svm")]
pairs = [[pair.split(":") for pair in row] for row in rows]
with h5py.File("py.h5", "w") as f:
    f["train/X"], f["train/y"] = x, y.astype("i4")
    f.create_dataset("packed/data", data=x.astype("f8"), chunks=(100, 2), compression="gzip", shuffle=True)
    f["packed/target"] = y > 0
    g = f.create_group("lists")
    g.attrs["encoding-type"], g.attrs["shape"] = "csr_matrix", (900, 54)
    g.create_dataset("data", data=np.array([v for row in pairs for _, v in row], "f8"), chunks=(333,), compression="gzip")
    g["indices"] = np.array([int(i) for row in pairs for i, _ in row], "i4")
    g["indptr"] = np.cumsum([0] + [len(row) for row in pairs]).astype("i8")
    f["names"] = np.array([b"a", b"b", b"c"])
END
    run text 1 data.train=table.csv solve.epochs=5
    for at in train train/X packed packed/data; do
        run py 1 data.train=py.h5:/$at solve.epochs=5 && grep -v '^first_index' py/model.txt >py.txt && cmp -s py.txt text/model.txt ||
            [ $at = packed ] || [ $at = packed/data ] || fail "h5py: $at: another model"
    done
    sed 1,8d py.txt >weights; sed 1,8d text/model.txt | cmp -s - weights || fail "h5py: packed: other weights"
    run py 1 data.train=py.h5:/lists model.type=kmeans model.clusters=3 && "$trireme" predict py py.h5:/lists | sort | uniq -c >out
    [ "$(awk '{ n += $1 } END { print n }' out)" = 900 ] || fail "h5py: lists: $(cat out)"
    expect 65 "/names: texts, expected numbers" train data.train=py.h5:/names
else skip "files by h5py: python3-h5py is not installed"
fi

# what cannot be done is said in one line
cp sparse.h5 damaged.h5; printf x | dd of=damaged.h5 bs=1 seek=9001 conv=notrunc 2>/dev/null
expect 65 "damaged.h5: damaged: elements" train data.train=damaged.h5
head -c 9000 table.h5 >short.h5
expect 65 "short.h5: cut off" train data.train=short.h5
expect 65 "an HDF5 file, expected data.format: ratings" train data.train=table.h5 model.type=mf
expect 65 "not an HDF5 file" train data.train=table.csv data.format=hdf5
expect 65 "has no Y; there is: columns/, X" train data.train=table.h5:/Y
expect 78 "ratings is no table of rows" convert table.csv out.h5 data.format=ratings
sed '$s/,[^,]*,/,x,/' table.csv >bad.csv
expect 65 "bad.csv:901: column b: 'x' is not a number" convert bad.csv out.h5 "data.columns=*: number"
expect 64 "did you mean data.label?" convert table.csv out.h5 data.lable=last
expect 64 "convert: expected DATA... OUT.h5" convert table.csv
expect 73 "cannot be created" convert table.csv table.csv/out.h5
for fault in convert.write=enospc:#3 convert.name=eio:1; do
    TRIREME_FAULT=$fault expect 74 "out.h5: cannot be written" convert table.csv out.h5
    [ ! -e out.h5 ] && [ ! -e out.h5.part ] || fail "$fault: something is left"
done
# predict: ranks share the rows, and one prints all in order; standard input is as good as a file
"$trireme" generate ctr -o shared.svm rows=3k features=100 nonzeros=5 2>/dev/null
check "a model to predict with" "$trireme" train data.train=shared.svm output=shared solve.epochs=2
"$trireme" predict shared shared.svm --probability >alone
[ "$(wc -l <alone)" -eq 3000 ] || fail "predict: $(wc -l <alone) lines"
on 3 "$trireme" predict shared shared.svm shared.svm --probability -o together
cat alone alone | cmp - together || fail "three ranks predict something else"
"$trireme" predict shared - --probability <shared.svm | cmp - alone || fail "predict - is something else"
on 2 "$trireme" evaluate shared shared.svm >evaluated
[ "$(grep -c '^rows  *3000$' evaluated)" -eq 1 ] || fail "evaluate on two ranks: $(cat evaluated)"
(cat shared.svm; echo 1 a:b) >torn.svm
refuses "a malformed row of another rank" 65 "torn.svm:3001: 'a:b'" on 2 "$trireme" predict shared torn.svm -o torn
[ ! -e torn ] && [ ! -e torn.part ] || fail "predictions of a malformed file are left"
