"""Orders: cleaned, joined with a compacted topic of customers, kept in a lake, and added up per minute and country.

Bad records go to `orders.dead-letters` with the reason. An order more than ten minutes late is in the lake but not in
the sums any more; the run says how many those were.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipelines import Pipeline, schemas, sinks, sources

ORDER = "order string, customer string, amount double, at timestamp"
CUSTOMER = "name string, country string"

pipeline = Pipeline("orders")
pipeline.source(
    "orders",
    sources.topic(
        "orders", value=schemas.json(ORDER, required=["order", "customer", "amount", "at"]), key_required=True
    ),
)
pipeline.source("customers", sources.table("customers", value=schemas.json(CUSTOMER)))


@pipeline.dataset
def clean(orders: DataFrame) -> DataFrame:
    """What an order is about, without where it came from; amounts in cents, so that sums are exact."""
    cents = F.round(F.col("amount") * 100).cast("bigint").alias("cents")
    return orders.select("order", "customer", cents, "at", F.to_date("at").alias("day"))


@pipeline.dataset
def enriched(clean: DataFrame, customers: DataFrame) -> DataFrame:
    """With the customer's name and country; an order of somebody unknown stays, with neither."""
    known = customers.select(F.col("_key").alias("customer"), "name", "country")
    return clean.join(known, "customer", "left")


@pipeline.dataset
def revenue(enriched: DataFrame) -> DataFrame:
    """Sums per minute and country, told once no order for that minute is waited for any more."""
    country = F.coalesce("country", F.lit("unknown")).alias("country")
    sums = enriched.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 minute"), country)
    return sums.agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("orders")).select(
        F.col("window.start").alias("minute"), "country", "cents", "orders"
    )


pipeline.sink("lake", enriched, sinks.parquet("lake/orders", partition_by=["day"], files=1))
pipeline.sink("revenue", revenue, sinks.topic("revenue", key="country"))

if __name__ == "__main__":
    pipeline.main()
