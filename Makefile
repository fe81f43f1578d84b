# One place for the commands of a working day; the work is done by Meson, Ninja and scripts/.
.PHONY: help build run check bench lint format clean distclean

help:
	@echo "make build      install what is missing, build build/reitosd, build/reitos, build/venv"
	@echo "make run        build, start the daemon here and print its URL"
	@echo "make check      install what the tests need and run all of them"
	@echo "make bench      measure side by side with a stock Jupyter server"
	@echo "make lint       the style and layer gates alone"
	@echo "make format     format the C sources"
	@echo "make clean      remove compiled files; distclean removes build/ altogether"

build:
	@scripts/build.sh

run: build
	@exec build/reitosd

check: build
	@scripts/check.sh

bench: build
	@scripts/bench.sh

lint:
	@scripts/lint/all.sh

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format-14 -i

clean:
	@if [ -f build/build.ninja ]; then ninja -C build -t clean; fi
	@rm -rf build-clang build-asan build-fuzz

distclean: clean
	@rm -rf build
