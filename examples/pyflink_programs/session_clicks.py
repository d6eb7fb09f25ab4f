"""The pages that each visitor saw in each visit: session windows, and a `ProcessWindowFunction` with global state."""

from varvite.common import Duration, Time, Types, WatermarkStrategy
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from varvite.datastream.state import ValueStateDescriptor
from varvite.datastream.window import EventTimeSessionWindows

CLICKS = [
    ("ann", "home", 1000),
    ("bob", "home", 2000),
    ("ann", "cart", 11000),
    ("ann", "news", 6000),
    ("ann", "home", 30000),
]


class ClickTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):  # noqa: ARG002
        return value[2]


class Visits(ProcessWindowFunction):
    def process(self, key, context, elements):
        visits = context.global_state().get_state(ValueStateDescriptor("visits", Types.INT()))
        number = (visits.value() or 0) + 1
        visits.update(number)
        pages = " ".join(page for _, page, _ in elements)
        window = context.window()
        yield f"{key}, visit {number}, {window.start}..{window.end}: {pages}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    clicks = env.from_collection(CLICKS, Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()]))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10))
    clicks = clicks.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ClickTime()))
    by_visitor = clicks.key_by(lambda click: click[0], key_type=Types.STRING())
    visits = by_visitor.window(EventTimeSessionWindows.with_gap(Time.seconds(6)))
    visits.process(Visits(), output_type=Types.STRING()).print()
    env.execute("session clicks")


if __name__ == "__main__":
    main()
