"""Orders in several currencies, and the rates as a stream: a `BroadcastProcessFunction`, which needs no keys."""

from varvite.common import Types
from varvite.datastream import StreamExecutionEnvironment
from varvite.datastream.functions import BroadcastProcessFunction
from varvite.datastream.state import MapStateDescriptor

ORDERS = [(1, 20.0, "USD"), (2, 10.0, "EUR"), (3, 7.5, "XAU")]
RATES = ["USD=0.5", "GBP=1.25", "USD=0.75"]
RATE_STATE = MapStateDescriptor("rates", Types.STRING(), Types.DOUBLE())


class Convert(BroadcastProcessFunction):
    """Yields what an order costs in euros at the newest rate; between the two streams there is no order in Flink."""

    def process_element(self, value, ctx: "BroadcastProcessFunction.ReadOnlyContext"):
        number, amount, currency = value
        rate = 1.0 if currency == "EUR" else ctx.get_broadcast_state(RATE_STATE).get(currency)
        yield f"order {number}: " + ("no rate yet" if rate is None else f"{amount * rate} EUR")

    def process_broadcast_element(self, value, ctx: "BroadcastProcessFunction.Context"):
        ctx.get_broadcast_state(RATE_STATE).put(value[0], value[1])


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    pair = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
    orders = env.from_collection(ORDERS, type_info=Types.TUPLE([Types.INT(), Types.DOUBLE(), Types.STRING()]))
    rates = (
        env.from_collection(RATES, type_info=Types.STRING())
        .map(lambda line: line.split("="))
        .map(lambda parts: (parts[0], float(parts[1])), output_type=pair)
    )
    orders.connect(rates.broadcast(RATE_STATE)).process(Convert(), output_type=Types.STRING()).print()
    env.execute("exchange rates")


if __name__ == "__main__":
    main()
