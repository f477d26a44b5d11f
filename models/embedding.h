#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "models/parameter.h"

namespace strait::models {

// A row of the table NAME.weight for each index.
class Embedding {
 public:
  // `what` is how errors call an index: "token", "position". The row `padding` gets no gradient;
  // -1: there is none.
  Embedding(ParameterMaker& maker, const std::string& name, std::int64_t rows, std::int64_t width,
            std::string what, std::int64_t padding = -1);

  // int64 [...] on the CPU, where they are checked without a wait for the table's device, to
  // [..., width]. An index that the table lacks throws std::out_of_range with the
  // number and the limit.
  at::Tensor forward(const at::Tensor& indices) const;

  const at::Tensor& weight() const { return weight_; }
  const std::shared_ptr<std::int64_t>& padding_row() const { return padding_row_; }

 private:
  at::Tensor weight_;
  std::string what_;
  std::shared_ptr<std::int64_t> padding_row_;
};

}  // namespace strait::models
