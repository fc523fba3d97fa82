# SPDX-License-Identifier: Apache-2.0
"""Stands in for Spark, which needs Java, in the tests of documents: runs a function for every item of a data set."""


class SparkContext:
    @classmethod
    def getOrCreate(cls):
        return cls()

    def parallelize(self, items, slices):
        assert len(items) == slices
        return DataSet(items)


class DataSet:
    def __init__(self, items):
        self.items = items

    def foreach(self, function):
        for item in self.items:
            function(item)
