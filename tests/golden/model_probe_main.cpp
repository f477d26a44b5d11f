// model_probe: reads a Hugging Face directory a line, and runs its model over the rows of its
// probe.safetensors (input_ids int64 [rows, length], loss_mask uint8 of the same shape, optional
// documents int64 [rows, most]: lengths, zero-filled) and writes result.safetensors: logits, the
// mean loss over targets, the global gradient norm, and every gradient as gradient.NAME. Answers
// each with a line: empty, or what was wrong.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>

#include "framework/tensors/safetensors_reader.h"
#include "framework/tensors/safetensors_writer.h"
#include "framework/tensors/weight_files.h"
#include "kernels/cross_entropy.h"
#include "kernels/mxfp4.h"
#include "kernels/squared_norm.h"
#include "kernels/weight_gradient_queue.h"
#include "models/model.h"
#include "models/tensor_names.h"

namespace strait {
namespace {

models::ModelConfig probe_config(const std::filesystem::path& directory) {
  std::ifstream file(directory / "config.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return models::parse_config(text, (directory / "config.json").string());
}

void load_probe_weights(models::Model& model, const models::ModelConfig& config,
                        const tensors::WeightFiles& files) {
  std::vector<models::TensorShape> shapes;
  for (const tensors::WeightFiles::Entry& entry : files.tensors()) {
    shapes.push_back({entry.info.name, entry.info.shape});
  }
  const auto names = models::match_tensors(config, shapes, files.directory().string());
  const at::NoGradGuard no_grad;
  for (const models::Parameter& parameter : model.parameters()) {
    at::Tensor target = parameter.value;
    const std::string& name = names.at(parameter.name);
    const auto rows = models::rows_in_file(parameter.name, {name, files.find(name)->info.shape});
    at::Tensor values = rows ? files.read_rows(name, rows->first, rows->count) : files.read(name);
    if (rows && !rows->scales.empty()) {
      values = kernels::dequantize_mxfp4(
          values, files.read_rows(rows->scales, rows->first_scale, rows->scale_count));
    }
    target.copy_(values.view(target.sizes()));
  }
}

models::Pass probe_pass(const tensors::SafetensorsReader& probe, const at::Tensor& tokens) {
  const std::int64_t length = tokens.size(1);
  std::vector<std::vector<std::int64_t>> documents(static_cast<std::size_t>(tokens.size(0)),
                                                   {length});
  if (probe.find("documents") != nullptr) {
    const at::Tensor lengths = probe.read("documents");
    for (std::int64_t row = 0; row < lengths.size(0); ++row) {
      std::vector<std::int64_t>& own = documents[static_cast<std::size_t>(row)];
      own.clear();
      for (std::int64_t i = 0; i < lengths.size(1); ++i) {
        const auto tokens_of_document = lengths[row][i].item<std::int64_t>();
        if (tokens_of_document > 0) own.push_back(tokens_of_document);
      }
    }
  }
  return models::make_pass(documents, length);
}

struct ProbeLoss {
  double mean = 0;
  std::vector<tensors::NamedTensor> gradients;
  double norm = 0;
};

// The loss of every token after the first of its row that the mask names, from the position before.
ProbeLoss probe_loss(const models::Model& model, const at::Tensor& hidden, const at::Tensor& tokens,
                     const at::Tensor& mask) {
  const std::int64_t length = tokens.size(1);
  const at::Tensor chosen =
      mask.narrow(1, 1, length - 1).flatten().to(at::kBool).nonzero().squeeze(1);
  const at::Tensor targets = tokens.narrow(1, 1, length - 1).flatten().index_select(0, chosen);
  const at::Tensor rows = hidden.narrow(1, 0, length - 1).flatten(0, 1).index_select(0, chosen);

  const kernels::Projection& head = model.head()->projection();
  const kernels::Projection given = kernels::detached(head);
  kernels::Projection gradient_of_head{at::zeros(head.weight.sizes(), at::kFloat), {}};
  if (head.bias.defined()) gradient_of_head.bias = at::zeros(head.bias.sizes(), at::kFloat);
  const kernels::CrossEntropyResult result = kernels::cross_entropy(
      given, rows.detach(), targets, 1.0 / static_cast<double>(targets.numel()), gradient_of_head);
  torch::autograd::backward({rows}, {result.hidden_gradient});

  ProbeLoss loss;
  loss.mean = result.loss_sum.item<double>() / static_cast<double>(targets.numel());
  double squares = 0;
  for (const models::Parameter& parameter : model.parameters()) {
    if (!parameter.owned) continue;
    at::Tensor gradient = kernels::leaf_gradient(parameter.value);  // zero for an idle expert
    const bool tied = parameter.value.is_same(model.tied().embedding);
    if (tied) gradient = gradient + gradient_of_head.weight;
    if (parameter.value.is_same(head.weight)) gradient = gradient_of_head.weight;
    if (parameter.value.is_same(head.bias)) gradient = gradient_of_head.bias;
    squares += kernels::squared_norm(gradient);
    loss.gradients.push_back({"gradient." + parameter.name, gradient});
  }
  loss.norm = std::sqrt(squares);
  return loss;
}

void run_probe(const std::filesystem::path& directory) {
  const models::ModelConfig config = probe_config(directory);
  const int last = static_cast<int>(models::describe(config).layers.size()) - 1;
  const auto model = models::make_model(config, {0, last}, at::kFloat, at::kCPU);
  load_probe_weights(*model, config, tensors::WeightFiles(directory));

  const tensors::SafetensorsReader probe(directory / "probe.safetensors");
  const at::Tensor tokens = probe.read("input_ids");
  const models::Pass pass = probe_pass(probe, tokens);
  at::Tensor values = tokens;
  for (const auto& layer : model->layers()) values = layer->forward(values, pass);
  const ProbeLoss loss = probe_loss(*model, values, tokens, probe.read("loss_mask"));

  std::vector<tensors::NamedTensor> results = loss.gradients;
  const at::NoGradGuard no_grad;
  const at::Tensor logits =
      kernels::project_logits(model->head()->projection(), values.flatten(0, 1));
  results.push_back({"logits", logits.view({tokens.size(0), tokens.size(1), -1})});
  results.push_back({"loss", at::tensor({loss.mean}, at::kDouble)});
  results.push_back({"gradient_norm", at::tensor({loss.norm}, at::kDouble)});
  tensors::write_safetensors(directory / "result.safetensors", results);
}

}  // namespace
}  // namespace strait

int main() {
  std::string directory;
  while (std::getline(std::cin, directory)) {
    std::string problem;
    try {
      strait::run_probe(directory);
    } catch (const std::exception& error) {
      problem = error.what();
      std::ranges::replace(problem, '\n', ' ');
    }
    std::cout << problem << std::endl;
  }
  return 0;
}
