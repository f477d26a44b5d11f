#include "framework/codec/transform_state.h"

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "framework/store/store_error.h"

namespace strait::codec {
namespace {

// Wide models get blocks: a basis takes width · block bytes, and its eigenvectors block³
// operations.
constexpr std::int64_t kLearntBlock = 512;
constexpr std::int64_t kSampledTokens = 128;  // of a message
// Fewer tokens than this times a block's values say too little about its covariance.
constexpr std::int64_t kLeastTokens = 2;
// A basis gains less on other values than on those that it was computed from.
constexpr double kTrust = 0.5;
constexpr double kMostColumn = 127;
// Of the largest norm, for each message: a spike is forgotten in time.
constexpr double kRemembered = 0.94;
// A unit above this many wanted steps misses the wanted error.
constexpr double kCoarse = 2;

// One coordinate may hold all of a token.
float unit_for(const TransformMoments& moments, const BasisPart& used) {
  const double fine = moments.step > 0 ? kUnitOfStep * moments.step : double{used.unit};
  return static_cast<float>(std::max(fine, 1.5 * moments.largest / kMostEntry));
}

std::int64_t block_of(std::int64_t width) {
  for (std::int64_t block = std::min(width, kLearntBlock); block > 1; --block) {
    if (width % block == 0) return block;
  }
  return 1;
}

template <class Value>
std::vector<Value> vector_of(const at::Tensor& tensor, at::ScalarType type) {
  const at::Tensor flat = tensor.to(type).contiguous();
  const auto* from = flat.const_data_ptr<Value>();
  return {from, from + flat.numel()};
}

// Each block of a token times its columns.
at::Tensor through(const at::Tensor& values, const at::Tensor& columns) {
  const std::int64_t tokens = values.size(0);
  const at::Tensor blocks = values.reshape({tokens, -1, columns.size(1)}).transpose(0, 1);
  return at::bmm(blocks, columns).transpose(0, 1).reshape({tokens, -1});
}

// Bits of a token: each coordinate's variance against the noise that rounding makes.
double bits_of(const at::Tensor& variances, double noise) {
  return 0.5 * at::log2(variances / noise + 1).sum().item<double>();
}

// The tensors of a cache's state: int64 [kCounts] (generation, steps, sampled tokens, tokens,
// largest norm, sent, step), the basis as it was sent, and the sums of an encoder.
constexpr std::int64_t kCounts = 7;
constexpr std::size_t kTensors = 5;

at::Tensor none_without(const at::Tensor& tensor) {
  return tensor.defined() ? tensor : at::zeros({1});
}

}  // namespace

TransformBasis::TransformBasis(BasisPart part) : part_(std::move(part)) {
  net::Frame sent;
  write_basis(part_, sent);
  bytes_ = at::empty({std::ssize(sent)}, at::kByte);
  std::memcpy(bytes_.mutable_data_ptr(), sent.data(), sent.size());
  mean_ = at::tensor(at::ArrayRef<float>(part_.mean), at::kFloat);
  if (part_.block == 0) return;
  const at::Tensor scales = at::tensor(at::ArrayRef<float>(part_.scales), at::kFloat);
  columns_ = at::tensor(at::ArrayRef<std::int8_t>(part_.columns), at::kChar)
                 .to(at::kFloat)
                 .view({-1, part_.block, part_.block})
                 .mul(scales.view({-1, 1, part_.block}));
}

at::Tensor TransformBasis::expand(const at::Tensor& coordinates) const {
  const at::Tensor values =
      part_.block == 0 ? coordinates : through(coordinates, columns_.transpose(1, 2));
  return values + mean_;
}

at::Tensor TransformBasis::project(const at::Tensor& values) {
  at::Tensor centred = values - mean_;
  if (part_.block == 0) return centred;
  if (!inverse_.defined()) {
    inverse_ = at::linalg_inv(columns_.to(at::kDouble)).transpose(1, 2).to(at::kFloat).contiguous();
  }
  return through(centred, inverse_);
}

std::vector<std::int64_t> products_shape(std::int64_t width) {
  const std::int64_t block = block_of(width);
  return {width / block, block, block};
}

void learn(TransformMoments& moments, const at::Tensor& changes, const at::Tensor& coordinates) {
  const std::int64_t tokens = changes.size(0);
  const std::int64_t width = changes.size(1);
  const std::int64_t block = block_of(width);
  if (moments.tokens == 0) {
    moments.products = at::zeros(products_shape(width), at::kFloat);
    moments.sums = at::zeros({width}, at::kFloat);
    moments.means = at::zeros({width}, at::kFloat);
  }
  moments.tokens += tokens;
  const std::int64_t stride = (tokens + kSampledTokens - 1) / kSampledTokens;
  const at::Tensor some = changes.slice(0, 0, tokens, stride);
  // Each message counts the same, however much the sizes of changes differ between them.
  const auto mean_square = some.square().mean().item<double>();
  if (!(mean_square > 0)) return;
  const at::Tensor scaled = some / std::sqrt(mean_square);
  const at::Tensor blocks = scaled.reshape({-1, width / block, block}).transpose(0, 1);
  moments.products = moments.products + at::bmm(blocks.transpose(1, 2), blocks);
  moments.sums = moments.sums + scaled.sum(0);
  const at::Tensor seen = coordinates.slice(0, 0, tokens, stride);
  moments.means = moments.means + seen.sum(0);
  moments.largest = std::max(kRemembered * moments.largest, seen.norm(2, 1).max().item<double>());
  moments.sampled += some.size(0);
}

std::optional<BasisPart> better_basis(const TransformMoments& moments, const TransformBasis& basis,
                                      double error, double bits) {
  const std::int64_t width = basis.width();
  const std::int64_t block = block_of(width);
  if (moments.sampled < kLeastTokens * block || block < 2) return std::nullopt;
  const auto count = static_cast<double>(moments.sampled);
  const at::Tensor mean = moments.sums.to(at::kDouble).div(count).view({-1, block, 1});
  const at::Tensor covariance =
      moments.products.to(at::kDouble).div(count) - mean.matmul(mean.transpose(1, 2));
  const auto [ascending, vectors] = at::linalg_eigh(covariance);
  const at::Tensor variances = ascending.flip(1).clamp_min(0);
  // In the mean over coordinates a change has an energy of 1, with its own mean.
  const at::Tensor now = moments.products.to(at::kDouble).diagonal(0, 1, 2) / count;
  const double saved = kTrust * (bits_of(now, error) - bits_of(variances, error));
  // A basis pays if it saves more bits than it takes itself, in as many tokens as it was learnt
  // from.
  const auto price = static_cast<double>(8 * width * (block + 9)) + bits;
  BasisPart next = basis.part();
  next.unit = unit_for(moments, next);
  if (!(saved * static_cast<double>(moments.tokens) > price)) {
    // Values have become much smaller, as after a spike: nothing fits until the unit does.
    const bool coarse = moments.step > 0 && basis.part().unit > kCoarse * moments.step;
    return coarse && next.unit < basis.part().unit / 2 ? std::optional(next) : std::nullopt;
  }
  next.block = block;
  // The vectors are in coordinates of the basis in use.
  at::Tensor columns = vectors.flip(2);
  if (basis.columns_.defined()) columns = basis.columns_.to(at::kDouble).matmul(columns);
  const at::Tensor scales = columns.abs().amax(1, true).clamp_min(1e-12) / kMostColumn;
  // Eight bits a value are enough. Columns that are not quite orthogonal cost few bits and no
  // error, since project() inverts what is sent.
  next.columns = vector_of<std::int8_t>((columns / scales).round(), at::kChar);
  next.scales = vector_of<float>(scales, at::kFloat);
  const at::Tensor centre = moments.means / count;
  next.mean = vector_of<float>(basis.expand(centre.unsqueeze(0)), at::kFloat);
  const double most = std::max(variances.max().item<double>(), 1e-30);
  next.spread = vector_of<std::uint8_t>(
      at::log2((variances / most).clamp_min(1e-30)).mul(2).round().add(255).clamp(0, 255),
      at::kByte);
  return next;
}

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
                               std::bit_cast<std::int64_t>(moments.largest), std::int64_t{sent},
                               std::bit_cast<std::int64_t>(moments.step)},
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
  // Without tokens there are no sums. A decoder never has any.
  if (count[3] == 0) return state;
  state.moments = {saved[2],
                   saved[3],
                   saved[4],
                   std::bit_cast<double>(count[4]),
                   std::bit_cast<double>(count[6]),
                   count[2],
                   count[3]};
  check(state.moments.products.sizes() == products_shape(width) &&
        state.moments.sums.numel() == width && state.moments.means.numel() == width);
  return state;
}

}  // namespace strait::codec
