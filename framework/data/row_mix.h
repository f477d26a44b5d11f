#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strait::data {

// A token file among several that are trained on together.
// A file of a data set.
struct DataFile {
  std::string path = {};
  double weight = 1;  // how often each of its rows is in an epoch; above 0
  bool operator==(const DataFile&) const = default;
};
// For messages: "a.jsonl, b.jsonl".
std::string paths_of(const std::vector<DataFile>& files);

// One of several token files that are trained on together.
struct MixedFile {
  std::int64_t rows = 0;
  double weight = 1;  // how often each of its rows is used per epoch; above 0
};

// A row of one of them.
struct RowChoice {
  std::int32_t file = 0;
  std::int64_t row = 0;
  bool operator==(const RowChoice&) const = default;
};

// The rows of an epoch, in the order of the files. With weight 2.25 every row comes twice, and a
// quarter of them, drawn by the seed, once more. A pure function, equal on every machine.
std::vector<RowChoice> mix_rows(std::span<const MixedFile> files, std::uint64_t seed);

}  // namespace strait::data
