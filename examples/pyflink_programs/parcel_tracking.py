"""Orders and the scans of their parcels: two connected streams, and a `KeyedCoProcessFunction` that joins them."""

from varvite.common import Types
from varvite.datastream import KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from varvite.datastream.state import ListStateDescriptor, ValueStateDescriptor

ORDERS = [(1, "ann"), (2, "bob"), (3, "cat")]
SCANS = [(2, "depot"), (1, "depot"), (2, "door"), (9, "depot")]


class Join(KeyedCoProcessFunction):
    """Yields (order, customer, place), whatever of the two comes first; scans without an order wait."""

    def open(self, runtime_context: RuntimeContext):
        self.customer = runtime_context.get_state(ValueStateDescriptor("customer", Types.STRING()))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.STRING()))

    def process_element1(self, value, ctx: "KeyedCoProcessFunction.Context"):
        self.customer.update(value[1])
        for place in self.waiting.get():
            yield ctx.get_current_key(), value[1], place
        self.waiting.clear()

    def process_element2(self, value, ctx: "KeyedCoProcessFunction.Context"):
        customer = self.customer.value()
        if customer is None:
            self.waiting.add(value[1])
        else:
            yield ctx.get_current_key(), customer, value[1]


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    kind = Types.TUPLE([Types.LONG(), Types.STRING()])
    orders = env.from_collection(ORDERS, type_info=kind)
    scans = env.from_collection(SCANS, type_info=kind)
    tracked = orders.connect(scans).key_by(lambda order: order[0], lambda scan: scan[0], key_type=Types.LONG())
    tracked.process(Join()).map(
        lambda found: f"{found[0]} of {found[1]}: {found[2]}", output_type=Types.STRING()
    ).print()
    env.execute("parcel tracking")


if __name__ == "__main__":
    main()
