"""Count of each number so far: a `MapFunction` with a value state."""

from varvite.common import Types
from varvite.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from varvite.datastream.state import ValueStateDescriptor


class CountFunction(MapFunction):
    """Counts the elements of a key."""

    def open(self, runtime_context: RuntimeContext):
        self.count_state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def map(self, value):
        current_count = self.count_state.value()
        if current_count is None:
            current_count = 0
        current_count += 1
        self.count_state.update(current_count)
        return value, current_count


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    ds = env.from_collection([1, 2, 3, 1, 2, 1])
    ds = ds.map(lambda x: (x, 1)).key_by(lambda x: x[0]).map(CountFunction())
    ds.print()
    env.execute("count function")


if __name__ == "__main__":
    main()
