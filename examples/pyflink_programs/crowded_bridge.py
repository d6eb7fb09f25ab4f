"""Cars on a bridge in sliding windows: a trigger that warns early, and late reports in a side output."""

from varvite.common import Duration, Time, Types, WatermarkStrategy
from varvite.common.watermark_strategy import TimestampAssigner
from varvite.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from varvite.datastream.state import ReducingStateDescriptor
from varvite.datastream.window import SlidingEventTimeWindows, Trigger, TriggerResult

CROSSINGS = [
    ("north", 1, 2000),
    ("south", 3, 4000),
    ("north", 5, 7000),
    ("north", 2, 13000),
    ("south", 1, 12000),
    ("south", 7, 24000),
]
ELEMENTS = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
LATE = OutputTag("late", ELEMENTS)


class CrossingTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):  # noqa: ARG002
        return value[2]


class Crowded(Trigger):
    """Once when there are more than five cars, and at the end of the window."""

    def __init__(self):
        self.cars = ReducingStateDescriptor("cars", lambda a, b: a + b, Types.INT())

    def on_element(self, element, timestamp, window, ctx):  # noqa: ARG002
        ctx.register_event_time_timer(window.max_timestamp())
        cars = ctx.get_partitioned_state(self.cars)
        before = cars.get() or 0
        cars.add(element[1])
        return TriggerResult.FIRE if before <= 5 < before + element[1] else TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):  # noqa: ARG002
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):  # noqa: ARG002
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_merge(self, window, ctx):
        raise NotImplementedError

    def clear(self, window, ctx):
        ctx.delete_event_time_timer(window.max_timestamp())
        ctx.get_partitioned_state(self.cars).clear()


class Report(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        for _, cars, _ in elements:
            yield f"{key} {window.start}..{window.end}: {cars} cars"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    crossings = env.from_collection(CROSSINGS, ELEMENTS).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(CrossingTime())
    )
    windows = crossings.key_by(lambda crossing: crossing[0], Types.STRING()).window(
        SlidingEventTimeWindows.of(Time.seconds(20), Time.seconds(10))
    )
    reports = (
        windows.trigger(Crowded())
        .allowed_lateness(5000)
        .side_output_late_data(LATE)
        .reduce(lambda a, b: (a[0], a[1] + b[1], b[2]), window_function=Report(), output_type=Types.STRING())
    )
    reports.print()
    # Nothing is late in a collection, whose watermark comes at its end.
    reports.get_side_output(LATE).print("late")
    env.execute("crowded bridge")


if __name__ == "__main__":
    main()
