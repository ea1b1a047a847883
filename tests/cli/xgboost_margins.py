"""Margins of rows as XGBoost predicts them by a model.json, after its documented format and in exact sums.
Usage: xgboost_margins.py model.json ROWS    (CSV without a header, nan: missing; or LIBSVM lines, whose columns are the model's)"""
import json, struct, sys

def f32(x):
    return struct.unpack("f", struct.pack("f", float(x)))[0]

def read_rows(path):
    for line in open(path):
        fields = line.split()
        if len(fields) > 1 or ":" in line:
            row = {int(k): f32(v) for k, v in (field.split(":") for field in fields[1:])}
        else:
            row = {c: f32(v) for c, v in enumerate(line.strip().split(",")) if v != "nan"}
        yield row

def leaf(tree, row):
    at, sets = 0, {}
    for node, begin, size in zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"]):
        sets[node] = set(tree["categories"][begin:begin + size])
    while tree["left_children"][at] != -1:
        x = row.get(tree["split_indices"][at])
        if x is None:
            left = tree["default_left"][at]
        elif tree["split_type"][at]:
            left = int(x) not in sets[at]
        else:
            left = x < f32(tree["split_conditions"][at])
        at = tree["left_children" if left else "right_children"][at]
    return f32(tree["split_conditions"][at])

learner = json.load(open(sys.argv[1]))["learner"]
model, parameters = learner["gradient_booster"]["model"], learner["learner_model_param"]
outputs = max(1, int(parameters["num_class"]))
base = {"binary:logistic": "5E-1", "count:poisson": "1"}.get(learner["objective"]["name"], "0")
assert parameters["base_score"] == base, "expected a margin of 0 to begin with"
for row in read_rows(sys.argv[2]):
    assert not row or max(row) <= int(parameters["num_feature"]), "a row has more columns than the model"
    sums = [0.0] * outputs
    for tree, output in zip(model["trees"], model["tree_info"]):
        sums[output] += leaf(tree, row)
    print(*("%.9g" % s for s in sums))
