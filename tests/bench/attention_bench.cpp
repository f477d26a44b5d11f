// Seconds and memory of causal attention, forward and backward, of one row: document by document
// as models compute it, beside libtorch's fused kernel under a mask of the row, and without any
// mask where the row is one document.
//   attention_bench [ROUNDS] [LENGTH...]
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "kernels/causal_attention.h"

namespace {

using namespace strait::kernels;

constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kWidth = 64;

// VmHWM, which writing 5 to clear_refs sets back to what is resident now.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

struct Result {
  double seconds = 1e30;  // the quickest
  double megabytes = 0;
};

using Attention = std::function<at::Tensor(const AttentionHeads&)>;

Result measure(std::int64_t length, int rounds, const Attention& attention) {
  Result result;
  for (int round = 0; round < rounds; ++round) {
    const auto leaf = [&] { return at::randn({1, length, kHeads, kWidth}).requires_grad_(); };
    const AttentionHeads heads{leaf(), leaf(), leaf()};
    const at::Tensor slope = at::randn({1, length, kHeads, kWidth});
    std::ofstream("/proc/self/clear_refs") << 5;
    const double before = peak_megabytes();
    const auto begin = std::chrono::steady_clock::now();
    torch::autograd::backward({attention(heads)}, {slope});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    result.seconds = std::min(result.seconds, taken.count());
    result.megabytes = std::max(result.megabytes, peak_megabytes() - before);
  }
  return result;
}

std::vector<AttentionSpan> equal_documents(std::int64_t length, std::int64_t count) {
  std::vector<AttentionSpan> spans;
  for (std::int64_t i = 0; i < count; ++i) {
    spans.push_back({0, i * (length / count), length / count});
  }
  return spans;
}

at::Tensor masked(const AttentionHeads& heads, const std::vector<AttentionSpan>& spans) {
  const std::int64_t length = heads.query.size(1);
  at::Tensor number = at::zeros({length}, at::kLong);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    number.narrow(0, spans[i].begin, spans[i].length).fill_(static_cast<std::int64_t>(i));
  }
  const at::Tensor mask =
      number.unsqueeze(1).eq(number.unsqueeze(0)).tril().view({1, 1, length, length});
  const auto by_head = [](const at::Tensor& values) { return values.transpose(1, 2); };
  return at::scaled_dot_product_attention(by_head(heads.query), by_head(heads.key),
                                          by_head(heads.value), mask)
      .transpose(1, 2);
}

at::Tensor unmasked(const AttentionHeads& heads) {
  const auto by_head = [](const at::Tensor& values) { return values.transpose(1, 2); };
  return at::scaled_dot_product_attention(by_head(heads.query), by_head(heads.key),
                                          by_head(heads.value), std::nullopt, 0.0, true)
      .transpose(1, 2);
}

void print(std::int64_t length, std::int64_t documents, const char* way, const Result& result) {
  std::printf("%6lld %9lld  %-18s %9.4f s %9.1f MB\n", static_cast<long long>(length),
              static_cast<long long>(documents), way, result.seconds, result.megabytes);
  std::fflush(stdout);
}

void compare(std::int64_t length, std::int64_t documents, int rounds) {
  const std::vector<AttentionSpan> spans = equal_documents(length, documents);
  AttentionRules rules;
  rules.scale = 0.125;
  print(length, documents, "by document", measure(length, rounds, [&](const AttentionHeads& heads) {
          return causal_attention(heads, spans, rules);
        }));
  AttentionRules windowed = rules;
  windowed.window = length / 8;
  print(length, documents, "window of an eighth", measure(length, rounds, [&](const auto& heads) {
          return causal_attention(heads, spans, windowed);
        }));
  AttentionRules dropped = rules;
  dropped.dropout = 0.1;
  print(length, documents, "dropout", measure(length, rounds, [&](const auto& heads) {
          return causal_attention(heads, spans, dropped);
        }));
  print(length, documents, "libtorch, mask",
        measure(length, rounds, [&](const auto& heads) { return masked(heads, spans); }));
  if (documents == 1)
    print(length, documents, "libtorch, causal", measure(length, rounds, unmasked));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  std::vector<std::int64_t> lengths;
  for (int i = 2; i < argc; ++i) lengths.push_back(std::atoll(argv[i]));
  if (lengths.empty()) lengths = {1024, 4096, 8192};
  std::puts("length documents  way                  seconds      memory");
  for (const std::int64_t length : lengths) {
    for (const std::int64_t documents : {1, 4, 32}) compare(length, documents, rounds);
  }
  return 0;
}
