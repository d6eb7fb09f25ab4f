"""Payments against rules that come as a stream: a `KeyedBroadcastProcessFunction`, with timers and broadcast state."""

from varvite.common import Types
from varvite.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.datastream import RuntimeContext, StreamExecutionEnvironment
from varvite.datastream.functions import KeyedBroadcastProcessFunction
from varvite.datastream.state import MapStateDescriptor

PAYMENTS = [("ann", 40, 1000), ("bob", 900, 2000), ("ann", 70, 3000), ("ann", 450, 9000)]
LIMITS = [("large", 500), ("busy", 200), ("busy", 100)]
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Time(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):  # noqa: ARG002
        return value[2]


class Check(KeyedBroadcastProcessFunction):
    """Checks what an account pays within five seconds, once they have passed, against the limits known by then."""

    def open(self, runtime_context: RuntimeContext):
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums", Types.LONG(), Types.INT()))
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.LONG(), Types.INT()))

    def process_element(self, value, ctx: "KeyedBroadcastProcessFunction.ReadOnlyContext"):
        end = ctx.timestamp() // 5000 * 5000 + 4999
        self.sums.put(end, (self.sums.get(end) or 0) + value[1])
        self.counts.put(end, (self.counts.get(end) or 0) + 1)
        ctx.timer_service().register_event_time_timer(end)

    def process_broadcast_element(self, value, ctx: "KeyedBroadcastProcessFunction.Context"):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def on_timer(self, timestamp: int, ctx: "KeyedBroadcastProcessFunction.OnTimerContext"):
        limits = ctx.get_broadcast_state(RULES)
        total, count = self.sums.get(timestamp), self.counts.get(timestamp)
        self.sums.remove(timestamp)
        self.counts.remove(timestamp)
        if total > limits.get("large"):
            yield f"{ctx.get_current_key()}: {total}"
        elif count > 1 and total > limits.get("busy"):
            yield f"{ctx.get_current_key()}: {count} payments of {total}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Time())
    payments = env.from_collection(PAYMENTS, type_info=Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()]))
    limits = env.from_collection(LIMITS, type_info=Types.TUPLE([Types.STRING(), Types.INT()]))
    keyed = payments.assign_timestamps_and_watermarks(strategy).key_by(lambda payment: payment[0], Types.STRING())
    keyed.connect(limits.broadcast(RULES)).process(Check(), output_type=Types.STRING()).print()
    env.execute("payment rules")


if __name__ == "__main__":
    main()
