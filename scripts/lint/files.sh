# Sourced by the gates: the C files that they look at (tracked, or new and not ignored).
c_files() {
    git ls-files -co --exclude-standard -- 'src/*.[ch]' 'python/*.[ch]' 'tests/*.[ch]' |
        while read -r f; do if [ -f "$f" ]; then echo "$f"; fi; done
}
