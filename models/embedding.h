#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "models/parameter.h"

namespace strait::models {

// A row of the table NAME.weight for each index.
class Embedding {
 public:
  // `what` is how errors call an index: "token", "position".
  Embedding(ParameterMaker& maker, const std::string& name, std::int64_t rows, std::int64_t width,
            std::string what);

  // int64 [...] to [..., width]. An index that the table lacks throws std::out_of_range with the
  // number and the limit.
  at::Tensor forward(const at::Tensor& indices) const;

  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_;
  std::string what_;
};

}  // namespace strait::models
