"""Four rows that several tests write, serve and read."""

TOY_ROWS = [[1.0, 0.0, 2.5], [0.0, 0.0, -1.0], [3.0, 1.0, 0.0], [0.5, 0.0, 0.0]]
TOY_LABELS = [1.0, 2.0, 2.0, 1.0]
