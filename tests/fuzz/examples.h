#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

// libFuzzer's own mutation of an input.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

// Valid inputs, written by the target that includes this file.
std::vector<std::string> examples();

// For a format so strict that mutation alone finds no valid text: every 16th input is one of the
// examples, and goes into the corpus if it is new. Found by libFuzzer by its name.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  constexpr unsigned kBegins = 16;
  static const std::vector<std::string> kExamples = examples();
  if (seed % kBegins != 0) return LLVMFuzzerMutate(data, size, most);
  const std::string& example = kExamples[seed / kBegins % kExamples.size()];
  const std::size_t length = std::min(example.size(), most);
  std::memcpy(data, example.data(), length);
  return length;
}
