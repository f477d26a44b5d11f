// What the quantising kernels cost, as ratios within one run: to a memory copy of the same float32
// tensor, and to the same arithmetic in libtorch's operators. One thread.
//   quantize_bench [--benchmark_filter=…] [--benchmark_min_time=…]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/row_quantization.h"
#include "tests/bench/share_reporter.h"

namespace {

using namespace strait::kernels;

constexpr std::int64_t kWidth = 1024;

// A tensor of `tokens`, its rows at another visit, and room for all that is made of it.
struct Row {
  explicit Row(std::int64_t tokens)
      : values(at::randn({tokens, kWidth})),
        later(values + 0.1 * at::randn({tokens, kWidth})),
        entry(static_cast<std::size_t>(entry_bytes(tokens, kWidth))),
        bytes(static_cast<std::size_t>(tokens * token_bytes({8, 32, true}, kWidth))),
        read(at::empty({tokens, kWidth})) {
    store_entry(input(values), entry.data());
  }

  static Values input(const at::Tensor& tensor) {
    return {tensor.const_data_ptr(), Element::float32, tensor.size(0), kWidth};
  }
  MutableValues output() {
    return {read.mutable_data_ptr(), Element::float32, read.size(0), kWidth};
  }

  at::Tensor values;
  at::Tensor later;
  std::vector<std::byte> entry;
  std::vector<std::byte> bytes;
  at::Tensor read;
};

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * kWidth * 4);
}

void copy(benchmark::State& state) {
  Row row(state.range(0));
  const auto size = static_cast<std::size_t>(row.values.nbytes());
  for (auto _ : state) {
    std::memcpy(row.read.mutable_data_ptr(), row.values.const_data_ptr(), size);
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void encode(benchmark::State& state, GroupFormat format, Rounding rounding) {
  Row row(state.range(0));
  SquareSums sums;
  for (auto _ : state) {
    quantize(Row::input(row.values), format, {rounding, 1}, row.bytes.data(), &sums);
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void decode(benchmark::State& state, GroupFormat format) {
  Row row(state.range(0));
  quantize(Row::input(row.values), format, {}, row.bytes.data(), nullptr);
  for (auto _ : state) {
    dequantize(row.bytes.data(), format, row.output());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

// The row alternates, so that there is a change every time.
void encode_change(benchmark::State& state, GroupFormat format, Rounding rounding) {
  Row row(state.range(0));
  SquareSums sums;
  bool fresh = true;
  bool odd = false;
  for (auto _ : state) {
    odd = !odd;
    quantize_change(Row::input(odd ? row.later : row.values), format, {rounding, 1}, fresh,
                    row.entry.data(), row.bytes.data(), &sums);
    fresh = false;
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void decode_change(benchmark::State& state, GroupFormat format) {
  Row row(state.range(0));
  store_entry(Row::input(row.values), row.entry.data());
  std::vector<std::byte> entry = row.entry;
  quantize_change(Row::input(row.later), format, {}, false, entry.data(), row.bytes.data(),
                  nullptr);
  for (auto _ : state) {
    apply_change(row.bytes.data(), format, false, row.entry.data(), row.output());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

// The 4-bit change of groups of 64, as one would write it with operators.
void encode_change_with_operators(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  Row row(state.range(0));
  at::Tensor entry = row.values.to(at::kBFloat16);
  at::Tensor bytes;
  bool odd = false;
  for (auto _ : state) {
    odd = !odd;
    const at::Tensor base = entry.to(at::kFloat);
    const at::Tensor groups = ((odd ? row.later : row.values) - base).view({-1, 64});
    const at::Tensor scales = groups.abs().amax(1, true).mul_(0.9 / 15);
    const at::Tensor inverse = scales.mul(2).reciprocal_();
    const at::Tensor levels = groups.mul(inverse).add_(8).floor_().clamp_(0, 15);
    const at::Tensor codes = levels.to(at::kByte).view({-1, 32, 2});
    bytes = codes.select(2, 0).bitwise_or(codes.select(2, 1).bitwise_left_shift(4));
    const at::Tensor change = levels.mul(2).sub_(15).mul_(scales).view(base.sizes());
    entry = base.add(change).to(at::kBFloat16);
    benchmark::DoNotOptimize(bytes.const_data_ptr());
  }
  count_bytes(state);
}

void decode_change_with_operators(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  Row row(state.range(0));
  at::Tensor entry = row.values.to(at::kBFloat16);
  const at::Tensor bytes = at::randint(256, {row.values.numel() / 64, 32}, at::kByte);
  const at::Tensor scales = at::rand({row.values.numel() / 64, 1}).mul_(0.01);
  at::Tensor read;
  for (auto _ : state) {
    const at::Tensor codes =
        at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, 2).view({-1, 64});
    const at::Tensor change = codes.to(at::kFloat).mul_(2).sub_(15).mul_(scales);
    entry = entry.to(at::kFloat).add_(change.view(entry.sizes())).to(at::kBFloat16);
    read = entry.to(at::kFloat);
    benchmark::DoNotOptimize(read.const_data_ptr());
  }
  count_bytes(state);
}

void register_all() {
  constexpr std::array<std::int64_t, 2> kTokens{32, 16384};  // 128 KiB and 64 MiB
  const auto add = [&](const std::string& name, auto function, auto... arguments) {
    auto* entry = benchmark::RegisterBenchmark(name.c_str(), function, arguments...);
    for (const std::int64_t tokens : kTokens) entry->Arg(tokens);
  };
  constexpr auto kNearest = Rounding::nearest;
  add("copy", copy);
  for (const int bits : {2, 4, 5, 8}) {
    const std::string name = std::to_string(bits) + " bits";
    const GroupFormat format{bits, 64, false};
    add("encode " + name, encode, format, kNearest);
    if (bits < 8) add("encode " + name + " unbiased", encode, format, Rounding::unbiased);
    add("decode " + name, decode, format);
    add("encode change " + name, encode_change, format, kNearest);
    add("decode change " + name, decode_change, format);
  }
  const GroupFormat turned{4, 64, true};
  add("encode 4 bits rotated unbiased", encode, turned, Rounding::unbiased);
  add("decode 4 bits rotated", decode, turned);
  add("encode change 4 bits rotated", encode_change, turned, kNearest);
  add("decode change 4 bits rotated", decode_change, turned);
  add("operators: encode change 4 bits", encode_change_with_operators);
  add("operators: decode change 4 bits", decode_change_with_operators);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  at::manual_seed(1);
  register_all();
  return strait::run_benchmarks(argc, argv, "float32 bytes");
}
