"""Readings of machines: alarms leave by a side output, which an `OutputTag` names."""

from varvite.common import Types
from varvite.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment
from varvite.datastream.state import ValueStateDescriptor

READINGS = [("press", 70), ("saw", 95), ("press", 91), ("press", 93), ("saw", 60)]
ALARM = OutputTag("alarm", Types.STRING())


class Watch(KeyedProcessFunction):
    """Yields (machine, highest reading so far), and to the side an alarm for each reading above 90."""

    def open(self, runtime_context: RuntimeContext):
        self.highest = runtime_context.get_state(ValueStateDescriptor("highest", Types.INT()))

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        highest = max(value[1], self.highest.value() or 0)
        self.highest.update(highest)
        yield ctx.get_current_key(), highest
        if value[1] > 90:
            yield ALARM, f"{ctx.get_current_key()} at {value[1]}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    readings = env.from_collection(READINGS, type_info=pair)
    watched = readings.key_by(lambda reading: reading[0], key_type=Types.STRING()).process(Watch(), output_type=pair)
    watched.print()
    watched.get_side_output(ALARM).print("alarm")
    env.execute("alarms")


if __name__ == "__main__":
    main()
