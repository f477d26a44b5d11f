#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "framework/codec/activation_cache.h"
#include "framework/codec/choice.h"
#include "framework/codec/codec.h"
#include "framework/codec/sample_format.h"

namespace strait::codec {

struct SampleEncoderOptions {
  Choice choice;
  int group = 64;
  bool rotate = false;
  kernels::Rounding rounding = kernels::Rounding::nearest;
  std::uint64_t key = 0;  // of stochastic rounding: seed and boundary, mixed
  // Asked once before the first row of every training step, on the encoding thread; empty: the
  // choice stays.
  std::function<Choice(store::Step, const Traffic&)> choose;
};

// Rows one by one, each by itself: quantised values (`fixed`), or with a cache the quantised change
// since the sample's last visit (`delta`), or bfloat16. The payload says of every row what it is,
// so a decoder follows any change of mind on the very message that has it. The layout is in
// MESSAGE.md, its constants in sample_format.h.
class SampleEncoder final : public Encoder {
 public:
  // Without a cache nothing is remembered and `delta` sends values.
  SampleEncoder(const SampleEncoderOptions& options, std::unique_ptr<ActivationCache> cache);
  ~SampleEncoder() override;

  void encode(const TensorHead& head, const at::Tensor& tensor, net::Frame& frame) override;
  void encode_whole(const TensorHead& head, net::Frame& frame) override;
  Traffic traffic() const override;
  ActivationCache* cache() { return cache_.get(); }

 private:
  SampleEncoderOptions options_;
  std::unique_ptr<ActivationCache> cache_;
  std::optional<store::Step> step_;
  Traffic traffic_;
};

}  // namespace strait::codec
