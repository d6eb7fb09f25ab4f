"""A million orders from Kafka through keyed state to Kafka, each counted once, also if the driver is killed."""
