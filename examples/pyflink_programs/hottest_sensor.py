"""The highest temperature of each sensor so far: a `KeySelector`, a `ReduceFunction` and named rows."""

from varvite.common import Row, Types
from varvite.datastream import KeySelector, ReduceFunction, StreamExecutionEnvironment

READING = Types.ROW_NAMED(["sensor", "celsius"], [Types.STRING(), Types.DOUBLE()])


class BySensor(KeySelector):
    def get_key(self, value):
        return value["sensor"]


class Hotter(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 if value1["celsius"] >= value2["celsius"] else value2


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    readings = env.from_collection(
        [Row("roof", 21.5), Row("cellar", 12.0), Row("roof", 24.0), Row("cellar", 11.5), Row("roof", 23.0)],
        type_info=READING,
    )
    hottest = readings.key_by(BySensor(), key_type=Types.STRING()).reduce(Hotter())
    hottest.map(lambda row: f"{row['sensor']}: {row['celsius']}", output_type=Types.STRING()).print()
    env.execute("hottest sensor")


if __name__ == "__main__":
    main()
