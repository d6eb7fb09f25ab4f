"""Encryption of a job's objects, under keys that never leave the process.

Invariants: I8 (authenticated means verified), I10 (bounded memory of headers).

| module | owns |
|---|---|
| `keys` | keys, key providers and the keyring of a process |
| `sealed_object` | the format of an encrypted object |
| `store` | the store that encrypts and decrypts |
"""
