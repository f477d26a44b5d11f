#include "tests/kernels/plain_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace strait::kernels::plain {
namespace {

constexpr int kNone = -1;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

std::uint16_t bfloat16_of(float value) {
  if (std::isnan(value)) return 0x7FC0;
  const std::uint32_t bits = bits_of(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

float float_of_half(std::uint16_t half) {
  const std::uint32_t exponent = (half >> 10U) & 31U;
  const std::uint32_t mantissa = half & 1023U;
  const float sign = (half & 0x8000U) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return mantissa != 0 ? kNan : sign * std::numeric_limits<float>::infinity();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), static_cast<int>(exponent) - 25);
}

// To nearest, ties to even; beyond the largest finite one: that one.
std::uint16_t half_of(float value) {
  if (std::isnan(value)) return 0x7E00;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::min(std::fabs(value), 65504.0F);
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int unit = std::max(exponent - 11, -24);
  const auto count = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, -unit)));
  if (unit == -24) return static_cast<std::uint16_t>(sign | count);
  return static_cast<std::uint16_t>(sign + (static_cast<std::uint32_t>(unit + 24) << 10U) + count);
}

float read_value(const void* data, Element element, std::int64_t i) {
  if (element == Element::float32) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  if (element == Element::bfloat16) return float_of(static_cast<std::uint32_t>(bits) << 16U);
  return float_of_half(bits);
}

void write_value(const MutableValues& out, std::int64_t i, float value) {
  if (out.element == Element::float32) {
    static_cast<float*>(out.data)[i] = std::isnan(value) ? kNan : value;
  } else {
    static_cast<std::uint16_t*>(out.data)[i] =
        out.element == Element::bfloat16 ? bfloat16_of(value) : half_of(value);
  }
}

float reach_of(int bits, Rounding rounding) {
  constexpr std::array<float, 5> kClip{1, 1, 0.55F, 0.75F, 0.9F};
  const int least_unclipped = rounding == Rounding::nearest ? 5 : 4;
  const float clip = bits < least_unclipped ? kClip[static_cast<std::size_t>(bits)] : 1;
  return clip / static_cast<float>((1 << bits) - 1);
}

// Never so large that any bytes at all could read as something infinite.
float scale_from(int byte, int top, int bits) {
  const int scale_code = std::clamp(byte + 8 * top - 247, 8, 8 * (248 - bits));
  return float_of(static_cast<std::uint32_t>(scale_code) << 20U);
}

std::uint32_t hash_of(std::uint64_t key, std::uint32_t index) {
  std::uint32_t hash = index * 0x9E3779B1U + static_cast<std::uint32_t>(key);
  hash = (hash ^ (hash >> 15U)) * 0x2C1B3C6DU;
  hash = (hash ^ (hash >> 12U)) + static_cast<std::uint32_t>(key >> 32U);
  hash *= 0x297A2D39U;
  return hash ^ (hash >> 15U);
}

// Uniform in [0, 1), 24 bits.
float draw_of(std::uint64_t key, std::uint32_t index) {
  return static_cast<float>(hash_of(key, index) >> 8U) * 0x1p-24F;
}

// Uniform in [-0.5, 0.5]. Four values 16 apart share a hash, each rotated right by one byte more.
float signed_draw_of(std::uint64_t key, std::uint32_t first, std::uint32_t i) {
  const std::uint32_t hash = hash_of(key, first + i / 64 * 64 + i % 16);
  const std::uint32_t rotated = std::rotr(hash, static_cast<int>(i / 16 % 4 * 8));
  return static_cast<float>(static_cast<std::int32_t>(rotated)) * 0x1p-32F;
}

std::uint64_t scrambled(std::uint64_t key) {
  key += 0x9e3779b97f4a7c15ULL;
  key = (key ^ (key >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  key = (key ^ (key >> 27U)) * 0x94d049bb133111ebULL;
  return key ^ (key >> 31U);
}

void butterflies(float* values, int count, int halvings) {
  for (int stride = 1; stride < count; stride *= 2) {
    for (int i = 0; i < count; ++i) {
      if ((i & stride) != 0) continue;
      const float sum = values[i] + values[i + stride];
      const float difference = values[i] - values[i + stride];
      values[i] = sum;
      values[i + stride] = difference;
    }
  }
  for (int i = 0; i < count; ++i) values[i] *= std::ldexp(1.0F, -halvings);
}

float largest(const float* values, int count) {
  float size = 0;
  for (int i = 0; i < count; ++i) {
    if (std::isnan(values[i])) return std::numeric_limits<float>::infinity();
    size = std::max(size, std::fabs(values[i]));
  }
  return size;
}

struct Group {
  int begin = 0;
  int count = 0;
  int scale_code = 0;
  bool rotated = false;
};

// In the order of 16 columns, then halves of them.
float column_sum(const std::vector<float>& values) {
  std::array<float, 16> columns{};
  for (std::size_t i = 0; i < values.size(); ++i) columns[i % 16] = columns[i % 16] + values[i];
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) columns[i] = columns[i] + columns[i + half];
  }
  return columns[0];
}

// The scale code of least error for Laplacian values of this mean square.
int mean_square_code(const float* values, int count, int code) {
  const float scale = float_of(static_cast<std::uint32_t>(code) << 20U);
  const float inverse = 1.0F / (2.0F * scale);
  std::vector<float> squares;
  for (int i = 0; i < count; ++i) {
    const float steps = values[i] * inverse;
    squares.push_back(steps * steps);
  }
  const float root = std::sqrt(column_sum(squares) / static_cast<float>(count));
  return std::max<int>(8, static_cast<int>((bits_of(scale * (1.06F * root)) + 0x80000U) >> 20U));
}

// Turns values that profit from it, and chooses the scale.
Group weigh(float* values, const GroupFormat& format, Rounding rounding, int begin, int count) {
  Group group{begin, count};
  float size = largest(values, count);
  if (size >= kHuge) return {begin, count, kNone};
  if (size == 0) return group;
  if (format.rotate && count == format.group) {
    const int stages = std::countr_zero(static_cast<unsigned>(count));
    std::vector<float> turned(values, values + count);
    butterflies(turned.data(), count, stages / 2);
    const float turned_size = largest(turned.data(), count);
    if (turned_size * (stages % 2 != 0 ? 0.70710678F : 1.0F) < size) {
      group.rotated = true;
      std::copy(turned.begin(), turned.end(), values);
      size = turned_size;
    }
  }
  const float target = size * reach_of(format.bits, rounding);
  group.scale_code = std::max<int>(8, static_cast<int>((bits_of(target) + 0xFFFFFU) >> 20U));
  if (format.bits == 2 && rounding == Rounding::nearest) {
    group.scale_code = mean_square_code(values, count, group.scale_code);
  }
  return group;
}

// Of value `i` of a group. `first`: index in the row of the group's first value.
int level_of(float value, float inverse, int bits, const Draw& draw, std::uint64_t words,
             std::uint32_t first, std::uint32_t i) {
  float level = value * inverse;
  const bool drawn =
      draw.rounding == Rounding::unbiased && (bits == 4 || bits == 5) && std::fabs(level) < 0.5F;
  level = level + static_cast<float>(1 << (bits - 1));
  if (drawn) level = level + signed_draw_of(words, first, i);
  return static_cast<int>(std::clamp(level, 0.0F, static_cast<float>((1 << bits) - 1)));
}

// The scale code with which levels have the length of their values.
int length_code(const float* values, const Group& group, const GroupFormat& format,
                const Draw& draw, std::uint64_t words, std::uint32_t index) {
  const float scale = float_of(static_cast<std::uint32_t>(group.scale_code) << 20U);
  const float inverse = 1.0F / (2.0F * scale);
  // The last group of a token is filled up with zeros.
  std::vector<float> squares(static_cast<std::size_t>(format.group));
  std::vector<float> products(squares.size());
  for (int i = 0; i < group.count; ++i) {
    const float steps = values[i] * inverse;
    const int level = level_of(values[i], inverse, format.bits, draw, words, index,
                               static_cast<std::uint32_t>(i));
    squares[static_cast<std::size_t>(i)] = steps * steps;
    products[static_cast<std::size_t>(i)] =
        static_cast<float>(2 * level - ((1 << format.bits) - 1)) * steps;
  }
  const float square = column_sum(squares);
  const float target = scale * (2.0F * square / std::max(column_sum(products), square));
  const auto draw_bits = static_cast<std::uint32_t>(draw_of(words, index) * 0x1p24F) & 0xFFFFFU;
  return std::max<int>(8, static_cast<int>((bits_of(target) + draw_bits) >> 20U));
}

// `values` is used up. `out` has token_bytes().
void quantize_token(std::vector<float>& values, const GroupFormat& format, const Draw& draw,
                    std::int64_t token, std::uint8_t* out) {
  const auto width = static_cast<int>(values.size());
  const auto groups = static_cast<int>(groups_of(format, width));
  std::memset(out, 0, static_cast<std::size_t>(token_bytes(format, width)));
  std::vector<Group> weighed;
  std::vector<float> rounding_scales;
  const std::uint64_t words = scrambled(draw.key);
  const bool unbiased = draw.rounding == Rounding::unbiased && format.bits <= 5;
  int top = 0;
  for (int begin = 0; begin < width; begin += format.group) {
    const int count = std::min(format.group, width - begin);
    weighed.push_back(weigh(values.data() + begin, format, draw.rounding, begin, count));
    Group& group = weighed.back();
    const auto code = static_cast<std::uint32_t>(group.scale_code);
    rounding_scales.push_back(float_of(code << 20U));
    if (unbiased && group.scale_code > 0) {
      group.scale_code = length_code(values.data() + begin, group, format, draw, words,
                                     static_cast<std::uint32_t>(token * width + begin));
    }
    top = std::max(top, weighed.back().scale_code >> 3);
  }
  out[0] = static_cast<std::uint8_t>(top);
  std::uint8_t* planes = out + 1 + groups + (format.rotate ? (groups + 7) / 8 : 0);
  for (int g = 0; g < groups; ++g) {
    const Group& group = weighed[static_cast<std::size_t>(g)];
    if (group.rotated) out[1 + groups + g / 8] |= static_cast<std::uint8_t>(1U << (g % 8));
    out[1 + g] = group.scale_code == kNone ? kRefusedGroup
                 : group.scale_code == 0
                     ? kZeroGroup
                     : static_cast<std::uint8_t>(std::max(1, group.scale_code - 8 * top + 247));
    const int plane = (group.count + 7) / 8;
    if (group.scale_code > 0) {
      const float scale = unbiased ? rounding_scales[static_cast<std::size_t>(g)]
                                   : scale_from(out[1 + g], top, format.bits);
      const float inverse = 1.0F / (2.0F * scale);
      for (int i = 0; i < group.count; ++i) {
        const auto first = static_cast<std::uint32_t>(token * width + group.begin);
        const int level = level_of(values[static_cast<std::size_t>(group.begin + i)], inverse,
                                   format.bits, draw, words, first, static_cast<std::uint32_t>(i));
        for (int bit = 0; bit < format.bits; ++bit) {
          planes[bit * plane + i / 8] |= static_cast<std::uint8_t>(((level >> bit) & 1) << (i % 8));
        }
      }
    }
    planes += format.bits * plane;
  }
}

// NaN stands for refused values.
std::vector<float> dequantize_token(const std::uint8_t* in, const GroupFormat& format,
                                    std::int64_t width) {
  std::vector<float> values(static_cast<std::size_t>(width));
  const auto groups = static_cast<int>(groups_of(format, width));
  const std::uint8_t* planes = in + 1 + groups + (format.rotate ? (groups + 7) / 8 : 0);
  for (int g = 0; g < groups; ++g) {
    float* group = values.data() + std::int64_t{g} * format.group;
    const auto count = static_cast<int>(
        std::min<std::int64_t>(format.group, width - std::int64_t{g} * format.group));
    const int plane = (count + 7) / 8;
    const float scale = scale_from(in[1 + g], in[0], format.bits);
    for (int i = 0; i < count; ++i) {
      int level = 0;
      for (int bit = 0; bit < format.bits; ++bit) {
        level |= ((planes[bit * plane + i / 8] >> (i % 8)) & 1) << bit;
      }
      group[i] = static_cast<float>(2 * level - ((1 << format.bits) - 1)) * scale;
      if (in[1 + g] == kZeroGroup) group[i] = 0;
      if (in[1 + g] == kRefusedGroup) group[i] = kNan;
    }
    const bool rotated = format.rotate && ((in[1 + groups + g / 8] >> (g % 8)) & 1) != 0;
    if (rotated && count == format.group && in[1 + g] != kZeroGroup && in[1 + g] != kRefusedGroup) {
      butterflies(group, count, (std::countr_zero(static_cast<unsigned>(count)) + 1) / 2);
    }
    planes += format.bits * plane;
  }
  return values;
}

std::vector<float> read_token(const Values& values, std::int64_t token) {
  std::vector<float> row(static_cast<std::size_t>(values.width));
  for (std::int64_t i = 0; i < values.width; ++i) {
    row[static_cast<std::size_t>(i)] =
        read_value(values.data, values.element, token * values.width + i);
  }
  return row;
}

void write_token(const MutableValues& out, std::int64_t token, const std::vector<float>& row) {
  for (std::int64_t i = 0; i < out.width; ++i) {
    write_value(out, token * out.width + i, row[static_cast<std::size_t>(i)]);
  }
}

std::uint8_t* entry_token(std::byte* entry, std::int64_t token, std::int64_t width) {
  return reinterpret_cast<std::uint8_t*>(entry) + token * entry_bytes(1, width);
}

std::vector<float> read_entry(const std::uint8_t* entry, std::int64_t width) {
  std::vector<float> row(static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < row.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, entry + 2 * i, 2);
    row[i] = float_of(static_cast<std::uint32_t>(bits) << 16U);
  }
  return row;
}

void write_entry(const std::vector<float>& row, std::uint8_t* entry) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint16_t bits = bfloat16_of(row[i]);
    std::memcpy(entry + 2 * i, &bits, 2);
  }
}

// What the entry stands for afterwards; NaN where the change was refused.
std::vector<float> advance_entry(const std::vector<float>& base, const std::vector<float>& change,
                                 std::uint8_t* entry) {
  std::vector<float> next = base;
  for (std::size_t i = 0; i < next.size(); ++i) {
    if (!std::isnan(change[i])) next[i] = base[i] + change[i];
  }
  write_entry(next, entry);
  next = read_entry(entry, static_cast<std::int64_t>(next.size()));
  for (std::size_t i = 0; i < next.size(); ++i) {
    if (std::isnan(change[i])) next[i] = kNan;
  }
  return next;
}

// A token with refused groups is left out.
void add_sums(const std::vector<float>& row, const std::vector<float>& change,
              const std::vector<float>& known, int group, SquareSums& sums) {
  std::int64_t refused = 0;
  for (std::size_t i = 0; i < row.size(); i += static_cast<std::size_t>(group)) {
    if (std::isnan(known[i])) ++refused;
  }
  sums.refused_groups += refused;
  for (std::size_t i = 0; i < row.size() && refused == 0; ++i) {
    const double error = double{row[i]} - known[i];
    sums.value += double{row[i]} * row[i];
    sums.change += double{change[i]} * change[i];
    sums.error += error * error;
  }
}

}  // namespace

std::vector<float> read_values(const Values& values) {
  std::vector<float> floats(static_cast<std::size_t>(values.tokens * values.width));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    floats[i] = read_value(values.data, values.element, static_cast<std::int64_t>(i));
  }
  return floats;
}

void write_values(const MutableValues& out, const std::vector<float>& floats) {
  for (std::size_t i = 0; i < floats.size(); ++i) {
    write_value(out, static_cast<std::int64_t>(i), floats[i]);
  }
}

void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums) {
  const std::int64_t bytes = token_bytes(format, values.width);
  for (std::int64_t token = 0; token < values.tokens; ++token) {
    auto* const to = reinterpret_cast<std::uint8_t*>(out) + token * bytes;
    const std::vector<float> row = read_token(values, token);
    std::vector<float> spent = row;
    quantize_token(spent, format, draw, token, to);
    if (sums != nullptr) {
      const std::vector<float> read = dequantize_token(to, format, values.width);
      add_sums(row, row, read, format.group, *sums);
    }
  }
}

void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out) {
  const std::int64_t bytes = token_bytes(format, out.width);
  for (std::int64_t token = 0; token < out.tokens; ++token) {
    const auto* const from = reinterpret_cast<const std::uint8_t*>(in) + token * bytes;
    write_token(out, token, dequantize_token(from, format, out.width));
  }
}

void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw, bool fresh,
                     std::byte* entry, std::byte* out, SquareSums* sums) {
  const std::int64_t bytes = token_bytes(format, values.width);
  for (std::int64_t token = 0; token < values.tokens; ++token) {
    std::uint8_t* const held = entry_token(entry, token, values.width);
    auto* const to = reinterpret_cast<std::uint8_t*>(out) + token * bytes;
    const std::vector<float> row = read_token(values, token);
    std::vector<float> base(row.size());
    if (!fresh) base = read_entry(held, values.width);
    std::vector<float> change(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      // A huge value is refused even if it has not changed.
      change[i] = std::fabs(row[i]) < kHuge ? row[i] - base[i] : kNan;
    }
    std::vector<float> spent = change;
    quantize_token(spent, format, draw, token, to);
    const std::vector<float> read = dequantize_token(to, format, values.width);
    const std::vector<float> known = advance_entry(base, read, held);
    if (sums != nullptr) add_sums(row, change, known, format.group, *sums);
  }
}

void apply_change(const std::byte* in, const GroupFormat& format, bool fresh, std::byte* entry,
                  const MutableValues& out) {
  const std::int64_t bytes = token_bytes(format, out.width);
  for (std::int64_t token = 0; token < out.tokens; ++token) {
    std::uint8_t* const held = entry_token(entry, token, out.width);
    const auto* const from = reinterpret_cast<const std::uint8_t*>(in) + token * bytes;
    std::vector<float> base(static_cast<std::size_t>(out.width));
    if (!fresh) base = read_entry(held, out.width);
    const std::vector<float> read = dequantize_token(from, format, out.width);
    write_token(out, token, advance_entry(base, read, held));
  }
}

void store_entry(const Values& values, std::byte* entry) {
  for (std::int64_t token = 0; token < values.tokens; ++token) {
    std::vector<float> row = read_token(values, token);
    for (float& value : row) {
      if (!(std::fabs(value) < kHuge)) value = 0;
    }
    write_entry(row, entry_token(entry, token, values.width));
  }
}

void load_entry(const std::byte* entry, const MutableValues& out) {
  for (std::int64_t token = 0; token < out.tokens; ++token) {
    const auto* const held =
        reinterpret_cast<const std::uint8_t*>(entry) + token * entry_bytes(1, out.width);
    write_token(out, token, read_entry(held, out.width));
  }
}

}  // namespace strait::kernels::plain
