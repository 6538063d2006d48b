// The embed op on every backend: for every weight type the dequantized row, bit for bit, times the scale.
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

TEST_CASE("embed: every weight type, tied to a linear or not") {
  Rng rng(61);
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    INFO(type.name);
    const std::uint32_t width = std::max<std::uint32_t>(type.block_elements, 32) * 2;
    const hal::WeightPart part = quantized_part(type.dtype, 53, width, rng);
    for (const float scale : {1.0f, 24.0f}) {
      for (const bool tied : {false, true}) {
        OpProgram p;
        const hal::ValueId x = p.value("x", width), y = p.value("y", 53);
        const hal::WeightId weight = p.weight(
            {part}, static_cast<std::uint8_t>(tied ? hal::kUseEmbedding | hal::kUseLinear : hal::kUseEmbedding));
        hal::Op& op = p.add(hal::OpKind::kEmbed, {hal::kNone, hal::kNone}, x);
        op.weight = weight;
        op.scale = scale;
        if (tied) p.add(hal::OpKind::kLinear, {x, hal::kNone}, y).weight = weight;
        BatchRows rows;
        for (const std::int32_t token : {0, 52, 17, 17, 1, 31, 15, 16, 48})
          rows.add(token, static_cast<std::int32_t>(rows.size()));
        Matrix expected = take_rows(dequantized(p.program.weights[0]), rows.tokens);
        for (float& value : expected.data) value = scale * value;
        for_each_backend([&]<class B>(const Target& target) {
          OpRunner<B> runner(target.context(), p.program);
          const Matrix out = runner.run(rows, {}, {x})[0];
          bool same = out.data.size() == expected.data.size();
          for (std::size_t i = 0; same && i < out.data.size(); ++i) same = out.data[i] == expected.data[i];
          CHECK(same);
        });
      }
    }
  }
}

TEST_CASE("embed position: rows of a table by position, from an offset on") {
  Rng rng(62);
  for (const corbel::DType dtype : {corbel::DType::kF32, corbel::DType::kF16, corbel::DType::kQ8_0}) {
    INFO(corbel::traits(dtype).name);
    OpProgram p;
    const hal::ValueId x = p.value("x", 96), y = p.value("y", 96);
    const hal::WeightId weight = p.weight({quantized_part(dtype, 70, 96, rng)}, hal::kUseEmbedding);
    hal::Op& op = p.add(hal::OpKind::kEmbedPosition, {x, hal::kNone}, y);
    op.weight = weight;
    op.first = 2;
    const Matrix in = random_matrix(9, 96, rng), table = dequantized(p.program.weights[0]);
    BatchRows rows = BatchRows::range(5, 63);
    for (std::int32_t i = 0; i < 4; ++i) rows.add(0, i, 1);
    Matrix expected(9, 96);
    for (std::size_t r = 0; r < 9; ++r)
      for (std::size_t c = 0; c < 96; ++c)
        expected.at(r, c) = in.at(r, c) + table.at(static_cast<std::size_t>(rows.positions[r]) + 2, c);
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), p.program);
      CHECK(runner.run(rows, {{x, in}}, {y})[0].same_bits(expected));
      // A position beyond the table is refused before anything is written.
      std::vector<std::byte> batch(runner.batch_layout().bytes);
      runner.fill_batch(batch.data(), BatchRows::range(2, 67));
      REQUIRE(runner.backend().upload(runner.stream(), runner.batch(), 0, batch.data(), batch.size()).ok());
      corbel::Status status = runner.backend().run(runner.stream(), runner.bindings());
      if (status.ok()) status = runner.backend().synchronize(runner.stream());
      CHECK(status.code() == corbel::Errc::kInternal);
    });
  }
}

}  // namespace
}  // namespace corbel_test
