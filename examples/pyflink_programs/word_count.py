"""Count of each word so far: flat_map, typed tuples, key_by and reduce; PyFlink's first tutorial."""

from varvite.common import Types
from varvite.datastream import StreamExecutionEnvironment

LINES = [
    "To be, or not to be,--that is the question:--",
    "Whether 'tis nobler in the mind to suffer",
    "The slings and arrows of outrageous fortune",
    "Or to take arms against a sea of troubles,",
    "And by opposing end them?--To die,--to sleep,--",
]


def split(line):
    for word in line.lower().replace("-", " ").split():
        yield word.strip(",.:;?'")


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    lines = env.from_collection(LINES, Types.STRING())
    counts = (
        lines.flat_map(split, output_type=Types.STRING())
        .filter(lambda word: len(word) > 0)
        .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .key_by(lambda pair: pair[0], key_type=Types.STRING())
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
    )
    counts.map(lambda pair: f"{pair[0]} {pair[1]}", output_type=Types.STRING()).print()
    env.execute("word count")


if __name__ == "__main__":
    main()
