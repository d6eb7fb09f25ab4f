"""The average of each sensor in each ten seconds: tumbling windows, an `AggregateFunction`, event time."""

from varvite.common import Duration, Time, Types, WatermarkStrategy
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment
from varvite.datastream.window import TumblingEventTimeWindows

READINGS = [
    ("roof", 20.0, 1000),
    ("roof", 22.0, 9000),
    ("cellar", 12.0, 4000),
    ("roof", 30.0, 8000),
    ("roof", 18.0, 12000),
]


class ReadingTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):  # noqa: ARG002
        return value[2]


class Average(AggregateFunction):
    def create_accumulator(self):
        return 0, 0.0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        for average in elements:
            yield f"{key} {window.start}..{window.end}: {average}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    readings = env.from_collection(READINGS, Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.LONG()]))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    readings = readings.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ReadingTime()))
    windows = readings.key_by(lambda reading: reading[0], Types.STRING()).window(
        TumblingEventTimeWindows.of(Time.seconds(10))
    )
    averages = windows.aggregate(
        Average(),
        window_function=WithWindow(),
        accumulator_type=Types.TUPLE([Types.LONG(), Types.DOUBLE()]),
        output_type=Types.STRING(),
    )
    averages.print()
    env.execute("tumbling average")


if __name__ == "__main__":
    main()
