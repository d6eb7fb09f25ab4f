"""The graph of a program, and its plan: operators, and the step before the first one.

Invariants: I3 (an error in front of the first operator reaches the driver before it commits).

| module | owns |
|---|---|
| `transformations` | the nodes of the graph, and their names |
| `stateless` | adding sources, steps, unions, side outputs |
| `keyed` | adding stateful operators |
| `column_operators` | adding `aggregate` and Spark's stateful operations |
| `operator` | `OperatorPlan` with its input, and the checks of its parts |
| `job` | `JobPlan`, and the checks of a query |
| `graph` | planning a graph |
| `branches` | planning unions and connected streams: the ways to an operator |
| `fusion` | steps in a row as one |
| `function_chain` | a chain of stateless functions at work |
| `preparation` | the one step before the first operator |
| `input_branches` | that step for several inputs |
| `input_watermarks` | the watermark of several inputs |
| `element_operator` | a keyed function with the steps after it |
| `broadcast_input` | distributing rows and broadcast rows |
"""
