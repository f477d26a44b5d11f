#include "kernels/moment_codes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "kernels/draws.h"
#include "kernels/parallel.h"
#include "kernels/random.h"

namespace strait::kernels {
namespace {

constexpr std::size_t kCodes = 256;
constexpr std::int64_t kGrainBlocks = 64;  // from which another thread pays off
using Table = std::array<float, kCodes>;

// The numbers of a decade are in the middles of equal intervals from a tenth of it to all of it;
// each decade has twice as many as the one below.
std::array<float, kCodes> table_of(MomentKind kind) {
  constexpr int kDecades = 7;
  const bool has_sign = kind == MomentKind::first;
  Table table{};
  std::size_t next = 0;
  table[next++] = 0;
  table[next++] = 1;
  double decade = 1;
  for (int below = 0; below < kDecades; ++below, decade /= 10) {
    const int numbers = 1 << (kDecades - 1 - below + (has_sign ? 0 : 1));
    for (int i = 0; i < numbers; ++i) {
      const auto number = static_cast<float>(decade * (0.1 + 0.9 * (i + 0.5) / numbers));
      table[next++] = number;
      if (has_sign) table[next++] = -number;
    }
  }
  TORCH_INTERNAL_ASSERT(next == kCodes);
  std::ranges::sort(table);
  return table;
}

const Table& table_for(MomentKind kind) {
  static const std::array<Table, 2> kTables = {table_of(MomentKind::first),
                                               table_of(MomentKind::second)};
  return kTables[static_cast<std::size_t>(kind)];
}

// The least code of a second moment that is not zero.
constexpr std::uint8_t kLeast = 1;
constexpr float kDrawUnit = 0x1p-24F;  // of draw_of()

struct MomentValues {
  const float* from;
  std::int64_t count;
  std::uint32_t index;  // of its first value, for draws
};

// Returns the block's size.
float encode_block(const MomentValues& block, MomentKind kind, std::uint64_t words,
                   std::uint8_t* to) {
  const Table& table = table_for(kind);
  const bool second = kind == MomentKind::second;
  std::array<float, kMomentBlock> values{};
  float size = 0;
  for (std::int64_t i = 0; i < block.count; ++i) {
    values[i] = second ? std::sqrt(block.from[i]) : block.from[i];
    size = std::max(size, std::abs(values[i]));
  }
  for (std::int64_t i = 0; i < block.count; ++i) {
    const float value = size > 0 ? std::clamp(values[i] / size, table.front(), 1.0F) : 0;
    // The number below, and the number above in the share of draws that makes the mean right.
    const auto above = std::upper_bound(table.begin() + 1, table.end() - 1, value);
    const auto below = above - 1;
    const float draw =
        static_cast<float>(draw_of(words, block.index + static_cast<std::uint32_t>(i))) * kDrawUnit;
    const bool up = (value - *below) > draw * (*above - *below);
    auto code = static_cast<std::uint8_t>(below - table.begin() + (up ? 1 : 0));
    if (second && values[i] > 0) code = std::max(code, kLeast);
    to[i] = code;
  }
  return size;
}

// A float's bits plus 16 random ones, cut to the upper half.
c10::BFloat16 rounded(float value, std::uint32_t draw) {
  const auto bits = std::bit_cast<std::uint32_t>(value) + (draw >> 8U);
  return {static_cast<std::uint16_t>(bits >> 16U), c10::BFloat16::from_bits()};
}

void encode_on_cpu(const at::Tensor& source, MomentKind kind, std::uint64_t key,
                   const CodedMoment& coded) {
  const std::uint64_t words = draw_words(key);
  const std::int64_t count = source.numel();
  const auto* const from = source.const_data_ptr<float>();
  parallel_for(moment_blocks(count), kGrainBlocks, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t at = block * kMomentBlock;
      const std::int64_t values = std::min(kMomentBlock, count - at);
      if (coded.sizes.defined()) {
        coded.sizes.mutable_data_ptr<float>()[block] =
            encode_block({from + at, values, static_cast<std::uint32_t>(at)}, kind, words,
                         coded.values.mutable_data_ptr<std::uint8_t>() + at);
        continue;
      }
      auto* const to = coded.values.mutable_data_ptr<c10::BFloat16>() + at;
      for (std::int64_t i = 0; i < values; ++i) {
        to[i] = rounded(from[at + i], draw_of(words, static_cast<std::uint32_t>(at + i)));
      }
    }
  });
}

void decode_on_cpu(const CodedMoment& coded, MomentKind kind, const at::Tensor& target) {
  const Table& table = table_for(kind);
  const std::int64_t count = target.numel();
  const auto* const codes = coded.values.const_data_ptr<std::uint8_t>();
  const auto* const sizes = coded.sizes.const_data_ptr<float>();
  auto* const to = target.mutable_data_ptr<float>();
  parallel_for(moment_blocks(count), kGrainBlocks, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first * kMomentBlock; i < std::min(last * kMomentBlock, count); ++i) {
      const float value = table[codes[i]] * sizes[i / kMomentBlock];
      to[i] = kind == MomentKind::second ? value * value : value;
    }
  });
}

// ---- Other devices, by libtorch's operators.

at::Tensor table_on(MomentKind kind, at::Device device) {
  Table table = table_for(kind);
  return at::from_blob(table.data(), {static_cast<std::int64_t>(kCodes)}, at::kFloat)
      .clone()
      .to(device);
}

// Rows of a block each, the last one filled with zeros.
at::Tensor in_blocks(const at::Tensor& values) {
  const std::int64_t blocks = moment_blocks(values.numel());
  const std::int64_t missing = blocks * kMomentBlock - values.numel();
  return at::constant_pad_nd(values, {0, missing}).view({blocks, kMomentBlock});
}

at::Tensor without_padding(const at::Tensor& blocks, std::int64_t count) {
  return blocks.reshape({-1}).narrow(0, 0, count);
}

void encode_by_operators(const at::Tensor& source, MomentKind kind, std::uint64_t key,
                         const CodedMoment& coded) {
  const at::Generator draws = keyed_generator(key, source.device());
  if (!coded.sizes.defined()) {
    const at::Tensor random =
        at::randint(0, 1 << 16, source.sizes(), draws, source.options().dtype(at::kInt));
    const at::Tensor bits = source.view(at::kInt).add(random).bitwise_right_shift(16);
    coded.values.view(at::kShort).copy_(bits);
    return;
  }
  const at::Tensor values = in_blocks(kind == MomentKind::second ? source.sqrt() : source);
  const at::Tensor size = values.abs().amax(1, /*keepdim=*/true);
  coded.sizes.copy_(size.view({-1}));
  const at::Tensor table = table_on(kind, source.device());
  const at::Tensor scaled =
      at::where(size > 0, values / size, 0).clamp_(table_for(kind).front(), 1);
  const at::Tensor below =
      (at::bucketize(scaled, table, /*out_int32=*/false, /*right=*/true) - 1).clamp_(0, 254);
  const at::Tensor low = table.index({below});
  const at::Tensor step = table.index({below + 1}) - low;
  const at::Tensor draw = at::rand(scaled.sizes(), draws, scaled.options());
  at::Tensor code = below + (scaled - low > draw * step);
  if (kind == MomentKind::second) code = at::where(values > 0, code.clamp_min(kLeast), code);
  coded.values.copy_(without_padding(code, source.numel()));
}

void decode_by_operators(const CodedMoment& coded, MomentKind kind, const at::Tensor& target) {
  const at::Tensor table = table_on(kind, target.device());
  const at::Tensor values =
      in_blocks(table.index({coded.values.to(at::kLong)})) * coded.sizes.unsqueeze(1);
  target.copy_(
      without_padding(kind == MomentKind::second ? values.square() : values, target.numel()));
}

void check(const CodedMoment& coded, const at::Tensor& plain) {
  const std::int64_t count = plain.numel();
  const bool bytes = coded.sizes.defined();
  TORCH_INTERNAL_ASSERT(plain.scalar_type() == at::kFloat && plain.is_contiguous() &&
                            coded.values.is_contiguous() && coded.values.numel() == count &&
                            coded.values.scalar_type() == (bytes ? at::kByte : at::kBFloat16) &&
                            (!bytes || coded.sizes.numel() == moment_blocks(count)),
                        "a coded moment of ", coded.values.toString(), " ", coded.values.sizes(),
                        " for ", plain.sizes());
}

}  // namespace

void decode_moment(const CodedMoment& coded, MomentKind kind, const at::Tensor& target) {
  check(coded, target);
  if (!coded.sizes.defined()) {
    target.copy_(coded.values);
  } else if (target.is_cpu()) {
    decode_on_cpu(coded, kind, target);
  } else {
    decode_by_operators(coded, kind, target);
  }
}

void encode_moment(const at::Tensor& source, MomentKind kind, std::uint64_t key,
                   const CodedMoment& coded) {
  check(coded, source);
  if (source.is_cpu()) {
    encode_on_cpu(source, kind, key, coded);
  } else {
    encode_by_operators(source, kind, key, coded);
  }
}

}  // namespace strait::kernels
