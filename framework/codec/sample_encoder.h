#pragma once

#include "framework/codec/activation_cache.h"
#include "framework/codec/choice.h"
#include "framework/codec/codec.h"
#include "framework/codec/device_rows.h"
#include "framework/codec/gradient_noise.h"
#include "framework/codec/sample_format.h"
#include "framework/codec/settings.h"
#include "framework/codec/tensor_pool.h"
#include "framework/codec/wide_row.h"

namespace strait::codec {

struct SampleEncoderOptions {
  Choice choice;
  int group = 64;         // values that share a scale
  std::uint64_t key = 0;  // of random draws: seed and boundary, mixed
  // Called once before the first row of every training step, on the encoding thread. Empty: the
  // choice stays.
  std::function<Choice(store::Step, const Traffic&)> choose;
  Direction direction = Direction::forward;
  at::Device device = at::kCPU;  // see DirectionSettings
};

// Encodes each row independently: as quantised values (`fixed`), as the quantised change since the
// sample's last use (`delta`, with a cache), or in bfloat16. The payload describes the encoding of
// every row. So a new choice takes effect in the message that uses it, and needs no agreement. The
// layout is in MESSAGE.md, its constants in sample_format.h.
//
// A gradient is sent as a change only if it is near the sample's last one; this is checked row by
// row. The noise of gradients is measured for choose().
//
// The hash of an entry's bytes is stored with the entry. If it does not match at the sample's next
// use, this end's memory was corrupted: the entry is not used, and the row is sent as a cache miss
// and counted as a resend.
//
// Tensors of a device are quantised there, in one launch, to the same bytes as on the CPU. The CPU
// handles what the kernels cannot, with a copy: bfloat16 rows, changes of gradients, entries on
// disk.
//
// In a steady state, encode() into a frame with enough room does not allocate.
class SampleEncoder final : public Encoder {
 public:
  // Without a cache `delta` sends values.
  SampleEncoder(SampleEncoderOptions options, std::unique_ptr<ActivationCache> cache);

  // Tensors are float32, bfloat16 or float16. Not for evaluation (std::logic_error).
  void encode(const TensorHeader& header, const at::Tensor& tensor, net::Frame& frame) override;
  void encode_whole(const TensorHeader& header, net::Frame& frame) override;
  bool takes_device() const override;
  Traffic traffic() const override;
  ActivationCache* cache() { return cache_.get(); }

 private:
  void begin_step(store::Step step);
  RowHeader cache_miss_header() const;
  RowHeader plan(const Row& row, const kernels::Values& values);
  bool is_near(const kernels::Values& values, std::span<const std::byte> entry);
  void encode_on_host(const TensorHeader& header, const at::Tensor& tensor, net::Frame& frame);
  bool fits_device(const TensorHeader& header);
  void encode_on_device(const TensorHeader& header, const at::Tensor& tensor, net::Frame& frame);
  // Returns where the values begin in the frame.
  std::size_t encode_row(const TensorHeader& header, std::size_t place,
                         const kernels::Values& values, net::Frame& frame);
  std::span<std::byte> resolve_base(RowHeader& row, store::SampleId sample, std::int64_t tokens);
  std::span<std::byte> resolve_wide(RowHeader& row, store::SampleId sample,
                                    const kernels::Values& values, kernels::SquareSums& sums);
  kernels::Draw draw_for(const TensorHeader& header, std::size_t place, RowBase base) const;
  void measure_noise(const RowHeader& row, const at::Tensor& values, const std::byte* sent);
  void count(const RowHeader& row, const kernels::SquareSums& sums);

  SampleEncoderOptions options_;
  std::unique_ptr<ActivationCache> cache_;
  std::optional<store::Step> step_;
  std::vector<RowHeader> plans_;  // of the current message's rows
  std::optional<DeviceRows> device_;
  std::vector<kernels::GpuRow> device_rows_;  // of the current message
  std::vector<store::SampleId> samples_;      // the same
  WideRow wide_;
  std::vector<float> compared_;  // one token and its entry
  std::optional<GradientNoise> noise_;
  TensorPool pool_{at::kFloat};  // contiguous copies on the CPU
  Traffic traffic_;
};

}  // namespace strait::codec
