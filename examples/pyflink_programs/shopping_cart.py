"""Carts of a shop: a `KeyedProcessFunction` with a value, a list and a map state, which are cleared at the checkout."""

from varvite.common import Types
from varvite.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from varvite.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

EVENTS = [
    ("ann", "add", "tea", 2),
    ("bob", "add", "cup", 1),
    ("ann", "add", "cup", 4),
    ("ann", "add", "tea", 1),
    ("bob", "checkout", "", 0),
    ("ann", "checkout", "", 0),
    ("bob", "add", "tea", 5),
    ("bob", "checkout", "", 0),
]


class Cart(KeyedProcessFunction):
    """Yields an order at each checkout."""

    def open(self, runtime_context: RuntimeContext):
        self.orders = runtime_context.get_state(ValueStateDescriptor("orders", Types.INT()))
        self.history = runtime_context.get_list_state(ListStateDescriptor("history", Types.STRING()))
        self.amounts = runtime_context.get_map_state(MapStateDescriptor("amounts", Types.STRING(), Types.INT()))

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        _, action, item, amount = value
        if action == "add":
            self.history.add(item)
            self.amounts.put(item, (self.amounts.get(item) or 0) + amount)
            return
        number = (self.orders.value() or 0) + 1
        self.orders.update(number)
        amounts = ", ".join(f"{amount} {item}" for item, amount in sorted(self.amounts.items()))
        yield f"{ctx.get_current_key()} {number}: {amounts} (added {' '.join(self.history.get())})"
        self.history.clear()
        self.amounts.clear()


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    events = env.from_collection(
        EVENTS, type_info=Types.TUPLE([Types.STRING(), Types.STRING(), Types.STRING(), Types.INT()])
    )
    orders = events.key_by(lambda event: event[0], key_type=Types.STRING()).process(Cart(), output_type=Types.STRING())
    orders.print()
    env.execute("shopping cart")


if __name__ == "__main__":
    main()
