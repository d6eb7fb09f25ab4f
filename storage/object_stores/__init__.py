"""Object stores: durable bytes under names, with put-if-absent.

Invariants: I1 (written means durable), I8 (a store that encrypts verifies what it reads), I10 (bounded retries and
memory).

| module | owns |
|---|---|
| `backoff` | the policy of retries: attempts and pauses |
| `contract` | the contract `ObjectStore`, and what its implementations share |
| `encrypted` | a store whose objects are encrypted |
| `local` | the store on a local or network filesystem |
| `memory` | the store in this process's memory |
| `names` | the names that every store accepts |
| `open` | the store at a URL |
| `pass_through` | base of stores that pass most calls on to another |
| `prefixed` | the objects below a prefix as a store |
| `prepared_object` | an object that is encoded once and sent several times |
| `remote` | the store on a remote URL: S3, Google Cloud Storage, Azure, and any filesystem of fsspec |
| `whole_objects` | base of stores that read and write whole objects only |
"""
