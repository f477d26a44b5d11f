#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "framework/codec/activation_cache.h"
#include "framework/codec/choice.h"
#include "framework/codec/codec.h"
#include "framework/codec/sample_format.h"
#include "framework/codec/tensor_pool.h"
#include "framework/codec/wide_row.h"

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
//
// An entry is sealed with the hash of its bytes. One that is not what was sealed when its sample
// comes back was spoiled in this end's memory: it is not built on, the row is a first visit, and
// counts as a resend.
//
// In a steady state an encode() into a frame with room for it allocates nothing.
class SampleEncoder final : public Encoder {
 public:
  // Without a cache nothing is remembered and `delta` sends values.
  SampleEncoder(SampleEncoderOptions options, std::unique_ptr<ActivationCache> cache);

  // Tensors are float32, bfloat16 or float16. Evaluation does not come here (std::logic_error).
  void encode(const TensorHeader& head, const at::Tensor& tensor, net::Frame& frame) override;
  void encode_whole(const TensorHeader& head, net::Frame& frame) override;
  Traffic traffic() const override;
  ActivationCache* cache() { return cache_.get(); }

 private:
  void begin_step(store::Step step);
  RowHeader first_visit() const;
  RowHeader plan(const Row& row);
  void encode_row(const TensorHeader& head, std::size_t place, const kernels::Values& values,
                  net::Frame& frame);
  std::span<std::byte> resolve_base(RowHeader& row, store::SampleId sample, std::int64_t tokens);
  std::span<std::byte> resolve_wide(RowHeader& row, store::SampleId sample,
                                    const kernels::Values& values, kernels::SquareSums& sums);
  kernels::Draw draw_for(const TensorHeader& head, std::size_t place) const;
  void count(const RowHeader& row, const kernels::SquareSums& sums);
  Memory memory() const;

  SampleEncoderOptions options_;
  std::unique_ptr<ActivationCache> cache_;
  std::optional<store::Step> step_;
  std::vector<RowHeader> plans_;  // of the rows at hand
  WideRow wide_;
  TensorPool pool_{at::kFloat};  // for tensors that do not lie as they must
  Traffic traffic_;
};

}  // namespace strait::codec
