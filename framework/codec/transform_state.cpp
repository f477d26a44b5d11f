#include "framework/codec/transform_state.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "framework/store/store_error.h"

namespace strait::codec {
namespace {

// The tensors of a cache's state: int64 [kCounts] (generation, steps, sampled tokens, tokens,
// largest norm, sent), the basis as it was sent, and the sums of an encoder.
constexpr std::int64_t kCounts = 6;
constexpr std::size_t kTensors = 5;

at::Tensor none_without(const at::Tensor& tensor) {
  return tensor.defined() ? tensor : at::zeros({1});
}

}  // namespace

void TransformState::set_basis(std::uint8_t of_generation, BasisPart part) {
  generation = of_generation;
  basis = std::make_unique<TransformBasis>(std::move(part));
}

void TransformState::begin_generation(BasisPart part) {
  set_basis(static_cast<std::uint8_t>(generation + 1), std::move(part));
  moments = {};
  sent = false;
}

void TransformState::save_to(ActivationCache& cache) const {
  cache.set_state({at::tensor({std::int64_t{generation}, steps, moments.sampled, moments.tokens,
                               std::bit_cast<std::int64_t>(moments.largest), std::int64_t{sent}},
                              at::kLong),
                   basis->bytes(), none_without(moments.products), none_without(moments.sums),
                   none_without(moments.means)});
}

TransformState TransformState::load(const ActivationCache& cache) {
  const std::int64_t width = cache.options().width;
  const std::vector<at::Tensor>& saved = cache.state();
  TransformState state;
  state.set_basis(0, first_basis(width));
  if (saved.empty()) return state;
  const auto check = [](bool right) {
    if (right) return;
    throw store::StoreError(store::StoreError::Kind::corrupt,
                            "the saved state of a transform codec is not what was written; resume "
                            "without the caches");
  };
  check(saved.size() == kTensors && saved[0].scalar_type() == at::kLong &&
        saved[0].numel() == kCounts);
  const at::Tensor counts = saved[0].contiguous();
  const auto* count = counts.const_data_ptr<std::int64_t>();
  check(count[0] >= 0 && count[0] <= 255 && count[1] >= 0);
  const at::Tensor bytes = saved[1].contiguous();
  try {
    state.set_basis(
        static_cast<std::uint8_t>(count[0]),
        read_basis({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()}, width));
  } catch (const CodecError&) {
    check(false);
  }
  state.steps = count[1];
  state.sent = count[5] != 0;
  if (count[3] == 0) return state;
  state.moments = {saved[2], saved[3], saved[4], std::bit_cast<double>(count[4]),
                   count[2], count[3]};
  check(state.moments.products.sizes() == products_shape(width) &&
        state.moments.sums.numel() == width && state.moments.means.numel() == width);
  return state;
}

}  // namespace strait::codec
