#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "models/parameter.h"

namespace strait::models {

// Looks up rows of the table NAME.weight.
class Embedding {
 public:
  // `what` is the name of an index in errors: "token", "position". The row `padding` gets no
  // gradient; -1: there is none.
  Embedding(ParameterMaker& maker, const std::string& name, std::int64_t rows, std::int64_t width,
            std::string what, std::int64_t padding = -1);

  // From int64 [...] on the CPU to [..., width]. Indices are checked there, without waiting for the
  // table's device. An index outside of the table throws std::out_of_range with the number and the
  // limit.
  at::Tensor forward(const at::Tensor& indices) const;

  const at::Tensor& weight() const { return weight_; }
  const std::shared_ptr<std::int64_t>& padding_row() const { return padding_row_; }

 private:
  at::Tensor weight_;
  std::string what_;
  std::shared_ptr<std::int64_t> padding_row_;
};

}  // namespace strait::models
