#pragma once

#include <random>
#include <vector>

#include "kernels/group_format.h"

namespace strait::kernels {

// What random rows are made of.
enum class Content : std::uint8_t {
  plain,  // Gaussian
  wild,   // many magnitudes, outliers, zeros, whole groups of zeros, denormals
  broken  // wild, with a few NaN, infinite and huge values
};

// A row of values in the memory of its element type, aligned to nothing in particular.
class RandomRow {
 public:
  RandomRow(std::int64_t tokens, std::int64_t width, Element element);

  void fill(Content content, std::mt19937& random);

  Values values() const { return {data(), element_, tokens_, width_}; }
  MutableValues output() { return {bytes_.data() + 4, element_, tokens_, width_}; }
  const void* data() const { return bytes_.data() + 4; }
  std::size_t size() const {
    return static_cast<std::size_t>(tokens_ * width_ * bytes_of(element_));
  }

  // As floats.
  std::vector<float> floats() const;

 private:
  std::int64_t tokens_;
  std::int64_t width_;
  Element element_;
  std::vector<std::byte> bytes_;
};

}  // namespace strait::kernels
