"""`odradek pipeline new`: a project that runs at once, to be changed into one's own."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.apps.terminal.sentence import Sentence

PIPELINE = '''"""{name}: words of lines, counted."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipelines import Pipeline, schemas, sinks, sources

pipeline = Pipeline("{name}")
pipeline.source("lines", sources.topic("{name}-lines", value=schemas.text()))


@pipeline.dataset
def words(lines: DataFrame) -> DataFrame:
    """One row a word, with where it is from."""
    each = F.explode(F.split(F.lower("value"), "[^a-z]+")).alias("word")
    return lines.select(each, "_topic", "_partition", "_offset").where("word != ''")


@pipeline.dataset
def counts(words: DataFrame) -> DataFrame:
    """How often there was each word so far."""
    return words.groupBy("word").count()


pipeline.sink("lake", words, sinks.parquet("lake/words"))
pipeline.sink("counts", counts, sinks.topic("{name}-counts", key="word"), mode="update")

if __name__ == "__main__":
    pipeline.main()
'''

TEST = '''"""The pipeline on a real node and a real session, in seconds: `pytest`."""

from pathlib import Path

from pyspark.testing import assertDataFrameEqual

FILE = Path(__file__).with_name("{module}.py")


def test_words_are_split(spark, pipeline):
    words = pipeline(FILE).dataset("words")
    lines = spark.createDataFrame(
        [("One two", "t", 0, 0)], "value string, _topic string, _partition int, _offset bigint"
    )
    assertDataFrameEqual(
        words(lines).select("word"), spark.createDataFrame([("one",), ("two",)], "word string")
    )


def test_lines_become_counts(pipeline):
    counting = pipeline(FILE)
    counting.send("{name}-lines", "to be or not to be", "to do")
    counting.run()
    assert len(counting.rows("lake")) == 8
    assert {{each["word"]: each["count"] for each in counting.rows("counts")}}["to"] == 3
'''

README = """# {name}

```console
$ odradek start                                     # a node, in another terminal
$ odradek topic create {name}-lines
$ printf 'to be or not to be\\n' | odradek produce {name}-lines
$ odradek pipeline run {module}.py --available-now
$ odradek consume {name}-counts --from-beginning
$ odradek group describe {name}
$ pytest
```
"""


def create(name: str, directory: Path) -> list[str]:
    """Write the project; what to do next."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,60}", name):
        raise Sentence(f"a project's name is made of small letters, digits and dashes, not {name!r}.", 2)
    if directory.exists() and any(directory.iterdir()):
        raise Sentence(f"{directory} is there already and not empty: choose another name or --directory.")
    module = name.replace("-", "_")
    directory.mkdir(parents=True, exist_ok=True)
    files = {f"{module}.py": PIPELINE, f"test_{module}.py": TEST, "README.md": README}
    for file, text in files.items():
        (directory / file).write_text(text.format(name=name, module=module))
    return [
        f"{directory} holds {', '.join(files)}. Next:",
        f"  odradek topic create {name}-lines",
        f"  odradek pipeline run {directory / module}.py --available-now",
        f"  pytest {directory}",
    ]
