"""Shop sales: JSON lines and CSV, a join, groups and Parquet, then a line for each shop."""

import json
import os
import tempfile

import numpy as np
import ray
from ray import tune
from ray.data.aggregate import Count, Max, Mean
from ray.tune import RunConfig, TuneConfig, Tuner

STORAGE = os.path.abspath("results")
PREPARED = os.path.abspath("prepared")


def write_tables():
    rng = np.random.default_rng(3)
    with open("sales.jsonl", "w") as file:
        for day in range(60):
            for shop in range(3):
                amount = round(10 + shop * 5 + day * 0.5 + float(rng.normal(0, 0.5)), 2)
                file.write(json.dumps({"shop": shop, "day": day, "amount": amount}) + "\n")
    with open("shops.csv", "w") as file:
        file.write("shop,city\n0,Linz\n1,Graz\n2,Wien\n9,Wels\n")


class Squared:
    def __init__(self, column):
        self.column = column

    def __call__(self, batch):
        batch[f"{self.column}_squared"] = batch[self.column] ** 2
        return batch


def fit_line(group, degree):
    fitted = np.polyfit(group["day"], group["amount"], degree)
    error = float(np.mean((np.polyval(fitted, group["day"]) - group["amount"]) ** 2))
    return {"city": [group["city"].iloc[0]], "error": [error], "slope": [float(fitted[-2])]}


def prepare():
    sales = ray.data.read_json("sales.jsonl", lines=True)
    shops = ray.data.read_csv("shops.csv", parallelism=1)
    table = sales.join(shops, join_type="inner", num_partitions=2, on=("shop",))
    assert table.count() == 180
    unsold = shops.join(sales, join_type="left_anti", num_partitions=2, on=("shop",))
    assert [row["city"] for row in unsold.take_all()] == ["Wels"]

    table = table.map_batches(Squared, fn_constructor_args=["amount"], concurrency=2)
    table = table.filter(lambda row: row["day"] < 50).map(
        lambda row: {**row, "week": row["day"] // 7}
    )
    mean = table.groupby("city").mean("amount").sort("mean(amount)", descending=True)
    assert [row["city"] for row in mean.take_all()] == ["Wien", "Graz", "Linz"]
    most = table.groupby(["city", "week"]).aggregate(Count(), Max("amount"), Mean("day"))
    assert most.count() == 24
    assert table.aggregate(Count(), Max("day")) == {"count()": 150, "max(day)": 49}
    assert sorted(table.unique("city")) == ["Graz", "Linz", "Wien"]
    table.write_parquet(PREPARED, partition_cols=["city"])
    most.write_csv("weeks")
    assert sum(name.endswith(".csv") for name in os.listdir("weeks")) >= 1


def objective(config):
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "at.json")) as file:
            start = json.load(file)["step"] + 1
    table = ray.data.read_parquet(PREPARED)
    for step in range(start, 3):
        lines = table.groupby("city").map_groups(
            fit_line, batch_format="pandas", fn_kwargs={"degree": config["degree"]}
        )
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "at.json"), "w") as file:
                json.dump({"step": step}, file)
            tune.report(
                {"error": lines.mean("error"), "cities": lines.count()},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


if __name__ == "__main__":
    if not os.path.exists("sales.jsonl"):
        write_tables()
    if not os.path.exists(PREPARED):
        prepare()
    path = os.path.join(STORAGE, "lines")
    if Tuner.can_restore(path):
        tuner = Tuner.restore(path, objective)
    else:
        tuner = Tuner(
            objective,
            param_space={"degree": tune.grid_search([1, 2])},
            tune_config=TuneConfig(metric="error", mode="min"),
            run_config=RunConfig(name="lines", storage_path=STORAGE),
        )
    results = tuner.fit()
    best = results.get_best_result()
    assert best.metrics["cities"] == 3
    assert best.metrics["error"] < 0.5
    print("DONE", len(results))
