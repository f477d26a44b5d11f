#pragma once

#include "framework/codec/codec.h"

namespace strait::stages {

// Encodes nothing: every call throws a runtime_error of this cause.
class FailingEncoder final : public codec::Encoder {
 public:
  explicit FailingEncoder(std::string cause) : cause_(std::move(cause)) {}
  void encode(const codec::TensorHeader&, const at::Tensor&, net::Frame&) override {
    throw std::runtime_error(cause_);
  }
  codec::Traffic traffic() const override { return {}; }

 private:
  std::string cause_;
};

}  // namespace strait::stages
